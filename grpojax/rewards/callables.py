"""Functions of one's own as rewards: the names of their parameters say what they get.

    def reward(completion, answer) -> float                    one completion; `answer` is its row's
    def reward(completions, answer, **columns) -> list[float]  those that are graded together, all as lists
Other parameters are columns of the row: `question` (or `prompt`, `prompts`) and `answer`, texts both, or what
the two are called in the rows; any other that its `meta` carries, of its own type, None where a row has none.
Either may be `async def`.  Completions are texts.  Functions of `sample`, `samples` or `group`, as the
package's own are, stay as they are.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from grpojax.rewards import awaited

OWN = ("sample", "samples", "group")  # first parameters of the package's own rewards
FIELDS = {"prompt": "question", "prompts": "question"}  # what a parameter may be called -> field of the row
COMPLETIONS = ("completion", "completions")  # no columns, also where rows have some of these names


def name_of(fn: Callable) -> str:
  """Returns "module:name", by which a run's config records the function; not what it does."""
  inner = getattr(fn, "func", fn)  # of a functools.partial
  named = inner if hasattr(inner, "__qualname__") else type(inner)
  return f"{named.__module__}:{named.__qualname__}"


def columns_of(fn: Callable) -> dict[str, bool]:
  """Returns the columns that a function asks for -> whether it needs them; "*" stands for all there are."""
  taken = inspect.signature(fn).parameters
  if next(iter(taken), "") in OWN:
    return {}
  asked = {}
  for name, p in taken.items():
    if p.kind is p.VAR_KEYWORD:
      asked["*"] = False
    elif p.kind is not p.VAR_POSITIONAL and name not in COMPLETIONS:
      asked[name] = p.default is p.empty
  return asked


def columns_in(example: dict, fields: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
  """Returns the columns of a row by name: its fields, their other names, and all that its `meta` carries."""
  try:
    carried = json.loads(example.get("meta") or "{}")
  except ValueError:  # of a dataset that keeps something else there
    carried = {}
  row = example | (carried if isinstance(carried, dict) else {})
  row |= {name: example[field] for name, field in {**FIELDS, **fields}.items() if name and field in example}
  return {name: value for name, value in row.items() if name not in COMPLETIONS}


def check(fn: Callable, fields: Mapping[str, str], examples: list[dict]) -> None:
  """Raises ValueError where the function needs a column that none of these rows has."""
  for name, need in columns_of(fn).items():
    if need and not any(columns_in(row, fields).get(name) not in (None, "") for row in examples):
      menu = ", ".join(name for name, value in columns_in(examples[0], fields).items() if value != "")
      raise ValueError(
        f"The reward {name_of(fn)} takes `{name}`, and no row has it; name one of {menu}, or the column in"
        " config.data.meta."
      )


def adapt(fn: Callable, fields: Mapping[str, str]) -> Callable:
  """Returns the function as a reward of `samples` or of a `sample`.

  `fields` are more names of columns -> fields of a row.

  Raises ValueError for a function that takes neither `completion` nor `completions`.
  """
  parameters = inspect.signature(fn).parameters
  if next(iter(parameters), "") in OWN:
    return fn
  asked = columns_of(fn)
  if "completions" not in parameters and "completion" not in parameters:
    raise ValueError(
      f"The reward {name_of(fn)} takes {', '.join(parameters) or 'nothing'}; its parameters must have"
      " `completion` (one text) or `completions` (a list of them), and may name columns of the row."
    )

  def row_of(sample) -> dict[str, Any]:
    row = columns_in(sample.example, fields)
    missing = {name: None for name, need in asked.items() if need and name not in row}
    return missing | {name: value for name, value in row.items() if name in asked or "*" in asked}

  def batch_of(samples) -> dict[str, list]:
    rows = [row_of(sample) for sample in samples]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return dict(completions=[sample.text for sample in samples], **columns)

  async def ask_of_all(samples):
    return await fn(**batch_of(samples))

  async def ask_of_one(sample):
    return await fn(completion=sample.text, **row_of(sample))

  def all_of(samples):
    return fn(**batch_of(samples))

  def one_of(sample):
    return fn(completion=sample.text, **row_of(sample))

  of_all, of_one = (ask_of_all, ask_of_one) if awaited.is_async(fn) else (all_of, one_of)
  return of_all if "completions" in parameters else of_one
