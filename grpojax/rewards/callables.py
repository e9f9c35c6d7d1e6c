"""Functions of one's own as rewards: the names of their parameters say what they get.

    def reward(completion, answer) -> float                    one completion; `answer` is its row's
    def reward(completions, answer, **columns) -> list[float]  those that are graded together, all as lists
Other parameters are columns of the row: `question` (or `prompt`, `prompts`), `answer`, or what the two are
called in the rows.  Either may be `async def`.  Completions are texts.  Functions of `sample`, `samples` or
`group`, as the package's own are, stay as they are.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

OWN = ("sample", "samples", "group")  # first parameters of the package's own rewards
FIELDS = {"prompt": "question", "prompts": "question"}  # what a parameter may be called -> field of the row


def name_of(fn: Callable) -> str:
  """Returns "module:name", by which a run's config records the function; not what it does."""
  inner = getattr(fn, "func", fn)  # of a functools.partial
  named = inner if hasattr(inner, "__qualname__") else type(inner)
  return f"{named.__module__}:{named.__qualname__}"


def columns_of(fn: Callable) -> list[str]:
  """Returns the columns that a function asks for by name and cannot do without."""
  taken = inspect.signature(fn).parameters
  if next(iter(taken), "") in OWN:
    return list(getattr(fn, "needs", ()))
  named = [name for name, p in taken.items() if p.kind is not p.VAR_KEYWORD and p.default is p.empty]
  return [name for name in named if name not in ("completion", "completions")]


def adapt(fn: Callable, fields: Mapping[str, str]) -> Callable:
  """Returns the function as a reward of `samples`; `fields` are more names of columns -> fields of a row.

  Raises ValueError for a function that takes neither `completion` nor `completions`.
  """
  parameters = inspect.signature(fn).parameters
  if next(iter(parameters), "") in OWN:
    return fn
  fields = {**FIELDS, **{name: field for name, field in fields.items() if name}}
  every = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
  awaits = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004
  if "completions" not in parameters and "completion" not in parameters:
    raise ValueError(
      f"The reward {name_of(fn)} takes {', '.join(parameters) or 'nothing'}; its parameters must have"
      " `completion` (one text) or `completions` (a list of them), and may name columns of the row."
    )

  def row_of(sample) -> dict[str, Any]:
    row = sample.example | {name: sample.example.get(field) for name, field in fields.items()}
    return row if every else {name: row[name] for name in parameters if name in row}

  def all_of(samples):
    rows = [row_of(sample) for sample in samples]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    found = fn(completions=[sample.text for sample in samples], **columns)
    return _wait([found])[0] if awaits else found

  def each_of(samples):
    if awaits:
      return _wait([fn(completion=sample.text, **row_of(sample)) for sample in samples])
    return [_attempt(fn, completion=sample.text, **row_of(sample)) for sample in samples]

  reward = all_of if "completions" in parameters else each_of
  reward.needs = tuple(dict.fromkeys(fields.get(name, name) for name in columns_of(fn)))
  return reward


def _attempt(fn: Callable, **knobs) -> float | Exception | None:
  try:
    return fn(**knobs)
  except Exception as error:  # costs this completion its reward, not the others theirs
    return error


def _wait(calls: Iterable[Coroutine]) -> list:
  """Returns what the calls give, or the exception that each raised; they wait for others side by side.

  In a thread of its own, as a notebook's has an event loop that already runs.
  """

  async def together():
    return await asyncio.gather(*calls, return_exceptions=True)

  with ThreadPoolExecutor(1) as thread:
    return thread.submit(asyncio.run, together()).result()
