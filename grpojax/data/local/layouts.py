"""Layouts: the columns of each public file that hold question, answer and tests; one row a dataset.

Column names are those of the files on the hub, with the variants that mirrors use; dots lead into
nested columns, and case does not matter (AIME is published as `problem` and `Problem`).
"""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from grpojax.data.local import clean, gold, unit_tests


class Layout(NamedTuple):
  prompt: Callable[[dict], Any]  # row -> a text or a list of messages; None or "" where it has none
  answer: Callable[[dict], str] | None  # row -> the gold answer
  tests: Callable[[dict], str] | None = None  # row -> test cases as JSON
  task: str = "math"
  meta: tuple[str, ...] = ()  # columns that are kept as they are, where a file has them; "*": all but `read`
  read: tuple[str, ...] = ()  # columns of the fields above


def pick(row: dict, *names: str) -> Any:
  """Returns the first of these columns that has a value, else None."""
  for name in names:
    value = _at(row, name)
    if value is not None and value != "" and value != []:
      return value
  return None


def _at(row: dict, name: str) -> Any:
  if name in row:
    return row[name]
  value: Any = row
  for part in name.split("."):
    value = _get(value, part) if isinstance(value, dict) else None
  return value


def _get(row: dict, name: str) -> Any:
  if name in row:
    return row[name]
  return {str(key).lower(): value for key, value in row.items()}.get(name.lower())


def column(*names: str) -> Callable[[dict], Any]:
  return lambda row: pick(row, *names)


def gold_in(*names: str, boxed_in: str = "") -> Callable[[dict], str]:
  r"""Returns a reader of the answer's column, or of the last \boxed{} of a solution's column."""
  return lambda row: gold.plain(pick(row, *names)) or gold.last_boxed(pick(row, boxed_in) or "")


# DAPO's file, slime's copy of it and AIME-2024 in the same layout carry the instruction in the prompt.
_INSTRUCTION = re.compile(
  r"\s*Solve the following math problem step by step\. The last line of your response should be of"
  r" the form Answer: [^\n]*? where \$Answer is the answer to the problem\.\s*(?P<question>.*?)\s*"
  r"(?:Remember to put your answer on its own line after \"Answer:\"\.\s*)?",
  re.DOTALL,
)


def without_instruction(row: dict) -> Any:
  """Returns DAPO's question alone: config.data.template chooses which form of answer to ask for."""
  prompt = pick(row, "prompt")
  alone = isinstance(prompt, list) and len(prompt) == 1
  match = _INSTRUCTION.fullmatch(str(prompt[0]["content"] if alone else prompt))
  return match["question"] if match else prompt


def olympiad(row: dict) -> str | None:
  if pick(row, "image_1", "images") is not None:
    raise ValueError("the question needs an image")
  parts = [pick(row, "context"), pick(row, "question", "problem")]
  return "\n".join(part for part in parts if part)


def countdown(row: dict) -> str:
  numbers, target = pick(row, "nums", "numbers"), pick(row, "target")
  if not isinstance(numbers, list) or target is None:
    raise ValueError("no nums or no target")
  return (
    f"Using the numbers {numbers}, create an equation that equals {target}. You can use basic"
    " arithmetic operations (+, -, *, /) and each number can only be used once."
  )


def program(*names: str) -> Callable[[dict], str | None]:
  """Returns a reader of the statement and the starter code behind it, which names what the tests call."""

  def prompt(row: dict) -> str | None:
    statement, starter = pick(row, *names), str(pick(row, "starter_code") or "").strip()
    if not isinstance(statement, str) or not starter:
      return statement
    return f"{statement.rstrip()}\n\nUse this starter code:\n```python\n{starter}\n```"

  return prompt


def tests_in(*names: str) -> Callable[[dict], str]:
  return lambda row: unit_tests.from_apps(pick(row, *names))


_MATH = ("level", "type", "subject", "unique_id", "id", "year", "url", "data_source")
_CODE = ("question_id", "problem_id", "difficulty", "platform", "contest_date", "url")

LAYOUTS = {
  "gsm8k": Layout(column("question"), lambda row: gold.after_hashes(pick(row, "answer") or "")),
  "math": Layout(column("problem"), gold_in("answer", boxed_in="solution"), meta=_MATH),
  "math_500": Layout(column("problem"), gold_in("answer", boxed_in="solution"), meta=_MATH),
  "aime": Layout(column("problem", "question"), gold_in("answer", boxed_in="solution"), meta=_MATH),
  "amc": Layout(column("problem", "question"), gold_in("answer"), meta=_MATH),
  "minerva": Layout(column("problem", "question"), gold_in("answer", boxed_in="solution"), meta=_MATH),
  "olympiadbench": Layout(
    olympiad, gold_in("final_answer", "answer"), meta=(*_MATH, "answer_type", "unit", "subfield")
  ),
  "dapo_math": Layout(
    without_instruction,
    gold_in("reward_model.ground_truth", "label", "solution", "answer"),
    meta=("data_source", "ability", "extra_info.index"),
  ),
  "deepscaler": Layout(column("problem"), gold_in("answer")),
  "countdown": Layout(countdown, gold_in("target"), task="countdown", meta=("nums", "numbers", "target")),
  "apps": Layout(program("question"), None, tests_in("input_output"), "code", _CODE),
  "livecodebench": Layout(program("question_content"), None, unit_tests.from_livecodebench, "code", _CODE),
  "code": Layout(
    program("prompt", "problem", "question"), None, tests_in("tests", "input_output"), "code", _CODE
  ),
}


def by_columns(prompt: str, answer: str = "", tests: str = "", meta: str = "") -> Layout:
  """Returns the layout of any file by its columns' names; `prompt` holds texts or lists of messages.

  `meta` names columns, separated by commas, that the reward finds in the row's `meta`, an object in JSON; "*"
  stands for all others.
  """
  return Layout(
    column(prompt),
    gold_in(answer) if answer else None,
    tests_in(tests) if tests else None,
    task="",
    meta=tuple(name.strip() for name in meta.split(",") if name.strip()),
    read=(prompt, answer, tests),
  )


def to_example(layout: Layout, row: dict) -> dict[str, str]:
  """Returns uid, question, history, answer, tests, task and meta, all text; `uid` is the question's hash.

  Raises ValueError saying what is wrong with the row, or any error where the row has another shape.
  """
  prompt = layout.prompt(row)
  if not prompt:
    raise ValueError(f"no question in its columns {', '.join(row)}")
  question, history = _split_chat(prompt)
  example = dict(question=question, history=json.dumps(history) if history else "", task=layout.task)
  for field in ("answer", "tests"):
    read = getattr(layout, field)
    example[field] = read(row) if read else ""
    if read and not example[field]:
      raise ValueError(f"no {field} in its columns {', '.join(row)}")
  kept = [name for name in row if name not in layout.read] if layout.meta == ("*",) else layout.meta
  meta = {name: value for name in kept if (value := _at(row, name)) is not None}
  "".join(example.values()).encode()  # half a surrogate pair is no text
  uid = clean.question_hash(example["question"], example["history"])
  return example | dict(uid=uid, meta=json.dumps(meta, default=str))


def _split_chat(prompt: Any) -> tuple[str, list[dict]]:
  """Returns the user's last message, and the messages before it."""
  chat = prompt if isinstance(prompt, list) else [dict(role="user", content=prompt)]
  messages = [dict(role=m["role"], content=m["content"]) for m in chat]
  if not all(isinstance(m["content"], str) and m["content"].strip() for m in messages):
    raise ValueError("a message is no text")
  if not all(isinstance(m["role"], str) for m in messages):
    raise ValueError("a role is no text")
  if messages[-1]["role"] != "user":
    raise ValueError(f"the last message is the {messages[-1]['role']}'s, not the user's")
  return messages[-1]["content"].strip(), messages[:-1]
