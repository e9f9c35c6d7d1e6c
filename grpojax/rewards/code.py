"""Right or wrong in programming: the last ```python fence of a completion, by the row's unit tests.

The tests are JSON, as in APPS and LiveCodeBench:
  {"inputs": [stdin, ...], "outputs": [stdout, ...]}
  {"inputs": [arguments, ...], "outputs": [result, ...], "fn_name": "f"}
where arguments are a list, or one JSON text a line, and then the result is JSON text too.  The sandbox is
given the inputs; outputs are compared here, and never enter it.
"""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from grpojax.rewards import extract, sandbox


class Tests(NamedTuple):
  inputs: list  # texts for stdin, or lists of arguments
  outputs: list  # texts, or results
  fn_name: str | None
  wrapped: bool  # APPS puts some results into a list of one: either counts


def unit_tests(
  samples, *, timeout: float = 10.0, memory_mb: int = 512, workers: int = 2
) -> list[float | Exception | None]:
  """Returns 1 if the program passes all tests, else 0; None if the row's tests cannot be read.

  A program has `timeout` seconds of CPU for all tests, three times as many on the clock, and `memory_mb`
  for all of up to 6 processes; `workers` programs run at once.
  """

  def grade(pair: tuple[str, str | None]) -> float | Exception | None:
    tests, program = read_tests(pair[0]), pair[1]
    if tests is None or program is None:
      return None if tests is None else 0.0
    try:
      outputs = sandbox.run(program, tests.inputs, tests.fn_name, timeout=timeout, memory_mb=memory_mb)
    except (OSError, RuntimeError) as error:
      return error
    return float(passes(outputs, tests))

  pairs = [(str(s.example["tests"]), extract.program(s.text)) for s in samples]
  unique = list(dict.fromkeys(pairs))
  with ThreadPoolExecutor(workers) as pool:  # each thread only waits for its sandbox
    verdicts = dict(zip(unique, pool.map(grade, unique), strict=True))
  return [verdicts[pair] for pair in pairs]


def read_tests(text: str) -> Tests | None:
  """Returns the row's tests; None where they cannot be read, or are no text that a program could be given."""
  try:
    tests = json.loads(text)
    inputs, outputs, fn_name = tests["inputs"], tests["outputs"], tests.get("fn_name")
    if not inputs or len(inputs) != len(outputs):
      return None
    if not fn_name:
      "".join(map(_text, inputs)).encode()  # raises for half a surrogate pair, which no stdin can hold
      return Tests([_text(x) for x in inputs], [_text(x) for x in outputs], None, False)
    if isinstance(inputs[0], str):
      inputs = [[json.loads(line) for line in x.splitlines() if line.strip()] for x in inputs]
      return Tests(inputs, [json.loads(x) for x in outputs], fn_name, False)
    return Tests([list(x) for x in inputs], outputs, fn_name, True)
  except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # the last: nested too deep
    return None


def passes(outputs: list[str], tests: Tests) -> bool:
  """Returns True if there is the right output for every test."""
  if len(outputs) != len(tests.outputs):
    return False
  if tests.fn_name is None:
    return all(same_text(*pair) for pair in zip(outputs, tests.outputs, strict=True))
  try:
    results = [json.loads(text) for text in outputs]
    return all(
      same_value(result, right) or (tests.wrapped and same_value([result], right))
      for result, right in zip(results, tests.outputs, strict=True)
    )
  except (ValueError, OverflowError, RecursionError):
    return False


def same_text(output: str, right: str) -> bool:
  """Returns True for equal words on equal lines; spaces and empty lines aside, decimals to six places."""
  output_words, words = (
    [line.split() for line in text.splitlines() if line.strip()] for text in (output, right)
  )
  return [len(line) for line in output_words] == [len(line) for line in words] and all(
    _same_word(*pair) for line in zip(output_words, words, strict=True) for pair in zip(*line, strict=True)
  )


def same_value(result, right) -> bool:
  """Returns True for equal JSON values, floats to nine digits; true is not 1, wherever it stands."""
  if isinstance(result, list) and isinstance(right, list):
    return len(result) == len(right) and all(map(same_value, result, right))
  if isinstance(result, dict) and isinstance(right, dict):
    return result.keys() == right.keys() and all(same_value(result[key], right[key]) for key in right)
  if isinstance(result, bool) or isinstance(right, bool):
    return result is right
  if isinstance(result, float) and isinstance(right, int | float):
    return math.isclose(result, right, rel_tol=1e-9, abs_tol=1e-9)
  return result == right


def _same_word(word: str, right: str) -> bool:
  """Returns True for equal words, or decimals that differ by 1e-6, absolutely or relatively."""
  if word == right or "." not in right:
    return word == right
  try:
    return math.isclose(float(word), float(right), rel_tol=1e-6, abs_tol=1e-6)
  except ValueError:
    return False


def _text(lines) -> str:
  return lines if isinstance(lines, str) else "\n".join(map(str, lines))


def _answer(text: str, **_) -> str | None:
  return extract.program(text)


def _check(*, timeout, memory_mb, workers):
  if not timeout > 0:
    raise ValueError(f"timeout = {timeout!r} must be a number of seconds above 0.")
  if not isinstance(memory_mb, int) or memory_mb < 64:
    raise ValueError(f"memory_mb = {memory_mb!r} must be an integer of at least 64, which Python takes.")
  if not isinstance(workers, int) or workers < 1:
    raise ValueError(f"workers = {workers!r} must be a number of programs at once, 1 or more.")
  if sandbox.obstacle():
    raise ValueError(sandbox.obstacle())


unit_tests.needs = ("tests",)
unit_tests.check = _check
unit_tests.answer = _answer
