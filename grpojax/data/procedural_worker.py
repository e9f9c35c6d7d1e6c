"""Questions and verdicts of reasoning-gym.  Runs in a process of its own: verifiers may hang, or eat memory.

Some verifiers evaluate an answer as Python.  Here such an answer is nothing but a literal, or a formula of
numbers and names, which cannot reach Python; 9**9**9 is one too, and costs the worker its life.
"""

import ast
import dataclasses
import functools
import json
import operator
import os
import re
import sys
import warnings
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

with warnings.catch_warnings():
  warnings.simplefilter("ignore")  # of what the library imports
  from reasoning_gym.factory import DATASETS

# Generators whose verifiers call eval: on lists ...
LITERALS = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
# ... and, by sympy, on formulas.
FORMULAS = (
  "countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration",
)  # fmt: skip
_BOARDS = ("arc_agi", "rearc")  # their verifiers compare with tuples, which JSON does not have
_FUNCTIONS = ("Abs", "E", "I", "acos", "asin", "atan", "cos", "cosh", "cot", "csc", "exp", "ln", "log", "pi")
_FUNCTIONS += ("sec", "sin", "sinh", "sqrt", "tan", "tanh")
_FORMULA = (
  ast.Expression, ast.BinOp, ast.UnaryOp, ast.Call, ast.Name, ast.Load, ast.Constant, ast.operator,
  ast.unaryop,
)  # fmt: skip
_APPLY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_APPLY |= {ast.USub: operator.neg, ast.UAdd: operator.pos}
_OURS = ("seed", "size")  # knobs of every generator that the data set


def score(generator: str, knobs: str, entry: dict[str, Any], answer: str) -> float:
  """Returns the library's own score of an answer to an entry, in 0..1; 0 where its verifier cannot read it.

  `knobs` are JSON.  MemoryError is not caught: it is the worker's.
  """
  dataset = _dataset(generator, knobs)
  if generator in FORMULAS and not _is_formula(answer):
    return 0.0
  if generator in _BOARDS:
    entry["metadata"]["output"] = tuple(map(tuple, entry["metadata"]["output"]))
  try:
    return float(dataset.score_answer(answer, entry))
  except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
    return 0.0


def _is_formula(text: str) -> bool:
  """Returns True for an expression of numbers, names and the usual functions: nothing that reaches Python."""
  try:
    nodes = list(ast.walk(ast.parse(text.strip(), mode="eval")))
  except (SyntaxError, ValueError, RecursionError, MemoryError):
    return False
  called = [node.func for node in nodes if isinstance(node, ast.Call)]
  return (
    all(isinstance(node, _FORMULA) for node in nodes)
    and all(isinstance(node.value, int | float) for node in nodes if isinstance(node, ast.Constant))
    and all(isinstance(fn, ast.Name) and fn.id in _FUNCTIONS for fn in called)
    and all(re.fullmatch(r"[A-Za-z][A-Za-z0-9]?|" + "|".join(_FUNCTIONS), name) for name in _names(nodes))
    and not any(node.keywords for node in nodes if isinstance(node, ast.Call))
  )


def _names(nodes: list[ast.AST]) -> list[str]:
  return [node.id for node in nodes if isinstance(node, ast.Name)]


@functools.lru_cache(maxsize=64)
def _dataset(generator: str, knobs: str, seed: int = 0, size: int = 1):
  """Returns the library's data set.  Raises ValueError for an unknown generator or knob, with the choices."""
  if generator not in DATASETS or generator == "composite":
    menu = ", ".join(sorted(name for name in DATASETS if name != "composite"))
    raise ValueError(f"reasoning-gym has no generator '{generator}'; it has {menu}.")
  make, config = DATASETS[generator]
  chosen = json.loads(knobs)
  takes = {field.name: field for field in dataclasses.fields(config) if field.name not in _OURS}
  for knob in chosen:
    if knob not in takes:
      menu = ", ".join(map(_shown, takes.values()))
      raise ValueError(f"{generator} has no knob '{knob}'; it takes {menu}.")
  try:
    dataset = make(config(**chosen, seed=seed, size=size))
    if generator in LITERALS:
      vars(sys.modules[make.__module__])["eval"] = ast.literal_eval
    return dataset
  except (AssertionError, TypeError, ValueError, LookupError) as error:
    raise ValueError(f"{generator} refuses the knobs {knobs} ({error or type(error).__name__}).") from error


def _shown(field: dataclasses.Field) -> str:
  return field.name if field.default is dataclasses.MISSING else f"{field.name}={field.default!r}"


def _fault(generator: str, knobs: str, entry: dict[str, Any]) -> str:
  """Returns what is wrong with an entry's gold answer; "" where nothing is seen to be."""
  gold = entry["answer"]
  if gold is None:  # several are right, and the verifier knows them by the metadata
    return ""
  if not isinstance(gold, str) or not gold.strip():
    return f"its gold answer {gold!r} is no text"
  if generator == "basic_arithmetic" and _value(entry["metadata"]["expression"]) != _value(gold):
    return f"its gold answer {gold} is not {entry['metadata']['expression']}"
  if score(generator, knobs, json.loads(json.dumps(entry)), gold) != 1:
    return f"its own verifier refuses its gold answer {gold!r:.60}"
  return ""


def _value(expression: str) -> Fraction | None:
  """Returns the exact value of an expression that the library wrote; None where it divides by 0."""

  def value(node) -> Fraction:
    if isinstance(node, ast.BinOp):
      return _APPLY[type(node.op)](value(node.left), value(node.right))
    if isinstance(node, ast.UnaryOp):
      return _APPLY[type(node.op)](value(node.operand))
    return Fraction(node.value)

  try:
    return value(ast.parse(expression.strip(), mode="eval").body)
  except ZeroDivisionError:
    return None


def rows_of(generator: str, knobs: dict[str, Any], seed: int, rows: int) -> Iterator[dict[str, Any]]:
  """Yields what procedural.draw does.  An entry is what is left of the library's in JSON, as in the data."""
  written = json.dumps(knobs, sort_keys=True)
  dataset = _dataset(generator, written, seed, rows)
  for index in range(rows):
    entry = json.loads(json.dumps(dataset[index], default=lambda number: number.item()))  # numpy's
    yield dict(entry=entry, fault=_fault(generator, written, entry))


def main() -> None:
  """Reads a job from stdin and writes its rows to stdout."""
  out = os.fdopen(os.dup(1), "w")
  os.dup2(2, 1)  # what libraries print is no row
  try:
    for row in rows_of(**json.load(sys.stdin)):
      out.write(json.dumps(row) + "\n")
  except ValueError as error:
    out.write(json.dumps(dict(refusal=str(error))) + "\n")
  out.close()


if __name__ == "__main__":
  main()
