"""Rewards of a completion: text -> number, in plain Python.

A reward is a function, and the name of its first parameter says what the function sees:
  fn(sample, *, knobs) -> float | None                      one completion
  fn(samples, *, knobs) -> list[float | Exception | None]   all completions, to grade them side by side
  fn(group, accuracy, *, knobs) -> list[float | None]       the G completions of one prompt
Each may be `async def`; of a sample or samples it is then asked while the device goes on sampling.
None means that the reward abstains, as it must where the truth is unknown; an exception, raised or in
the list, that it failed.  In the config, `fn` is
'rules:integer_answer' (a function of grpojax/rewards/rules.py) or 'my.module:my_reward'.  A reward
may declare, as attributes:
  needs = ("answer",)              the fields of the dataset that it reads
  check(**knobs)                   raises ValueError where its knobs are illegal
  answer(text, **knobs)            -> str | None, what majority votes compare; else the whole text

The reward called `accuracy` is the task's own verdict, 0 or 1; `accuracy` is reported, and decides which
groups are mixed, without weight or shaping.  Training uses the weighted sum of all rewards.  A reward with
`only` is asked on some rows of the dataset alone (routing.py).
"""

import functools
import importlib
import importlib.util
import inspect
import numbers
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from math import isfinite  # the name `math` is that of grpojax/rewards/math.py here
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from grpojax.rewards import awaited, routing
from grpojax.rewards.shaping import load_scorer as load_scorer

OURS = ("fn", "weight", "only")  # keys of a reward in the config that are no knobs of its function
_ABSTAINED = "abstained"
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class Sample(NamedTuple):
  """One completion, as a reward sees it."""

  text: str  # the completion, without special tokens
  example: dict  # the row of the dataset
  length: int  # of the completion in tokens, EOS included; never to be measured on the text
  ended: bool  # False: the response budget cut it


class Reward(NamedTuple):
  name: str
  fn: Callable  # knobs bound
  sees: str  # "sample", "samples" or "group"
  weight: float
  needs: tuple[str, ...]
  answer: Callable  # text -> str | None, knobs bound
  only: routing.Only  # the rows on which it is asked
  awaits: bool  # `fn` returns a coroutine


class Rewards(NamedTuple):
  """`accuracy` comes first."""

  all: tuple[Reward, ...]

  def needs(self, row: dict) -> tuple[str, ...]:
    """Returns the fields of a row of the dataset that the rewards which are asked on it read."""
    asked = [reward for reward in self.all if routing.asks(reward.only, row)]
    return tuple(sorted({field for reward in asked for field in reward.needs}))

  def has_verdict(self, row: dict) -> bool:
    """Returns whether `accuracy` is asked on this row of the dataset."""
    return not self.all or routing.asks(self.all[0].only, row)

  def answer(self, text: str) -> str | None:
    """Returns a completion's answer, in a form that equal answers share; None if it has no answer."""
    return self.all[0].answer(text)


class Graded(NamedTuple):
  """Rewards of P prompts with G completions each.  All numpy."""

  reward: np.ndarray  # [P, G] float32, the weighted sum; 0 where not valid
  accuracy: np.ndarray  # [P, G] float32; NaN where it is not asked
  valid: np.ndarray  # [P, G] bool: every reward that is asked gave a finite number
  known: dict[str, np.ndarray]  # name -> [P, G] bool: this one did
  parts: dict[str, np.ndarray]  # name -> [P, G] float32, without its weight; 0 where there is none, NaN where
  # it is not asked
  counts: dict[str, int]  # "rewards/<name>/failed" and "rewards/<name>/abstained", in completions
  first_error: str  # the first failure, "" if there was none


def build(config, functions: Mapping[str, Callable] = MappingProxyType({})) -> Rewards:
  """Builds config.reward: name -> dict(fn, weight=1.0, knobs).  Raises ValueError naming the key.

  `functions` are by name those that are in memory, whose `fn` is a name for the record alone.
  """
  if "accuracy" not in config:
    raise ValueError(
      "config.reward.accuracy is missing; set it to the reward that tells right from wrong, such as"
      " dict(fn='rules:integer_answer', marker='#')."
    )
  names = ["accuracy", *(name for name in config if name != "accuracy")]
  keys = {name: f"config.reward.{name}" for name in names}
  for name, key in keys.items():
    if not hasattr(config[name], "items"):
      raise ValueError(f"{key} is {config[name]!r}, but must be a dict of fn and its keyword arguments.")
  fns = {name: functions.get(name) or _find(key, config[name].get("fn", "")) for name, key in keys.items()}
  built = tuple(_build_one(key, name, config[name], fns[name]) for name, key in keys.items())
  for reward in built:
    if reward.sees == "group" and built[0].only and reward.only != built[0].only:
      raise ValueError(
        f"config.reward.{reward.name} sees accuracy, which not all rows have; set config.reward.{reward.name}"
        ".only to config.reward.accuracy.only."
      )
  return Rewards(built)


def _build_one(key: str, name: str, slot, fn: Callable) -> Reward:
  sees = _scope(fn)
  if sees == "group" and name == "accuracy":
    raise ValueError(f"{key}: {fn.__name__} sees a whole group; accuracy is of one completion.")
  weight = slot.get("weight", 1.0)
  if not isinstance(weight, numbers.Real) or not isfinite(weight):
    raise ValueError(f"{key}.weight = {weight!r} must be a finite number.")
  knobs = {k: v for k, v in slot.items() if k not in OURS}
  _check_knobs(key, fn, knobs, ["group", "accuracy"] if sees == "group" else [sees])
  awaits = awaited.is_async(fn)
  return Reward(
    name=name,
    fn=functools.partial(awaited.waiting(fn) if awaits and sees == "group" else fn, **knobs),
    sees=sees,
    weight=float(weight),
    needs=tuple(getattr(fn, "needs", ())),
    answer=functools.partial(fn.answer, **knobs) if hasattr(fn, "answer") else str.strip,
    only=routing.read(key, slot.get("only", {})),
    awaits=awaits and sees != "group",
  )


def _check_knobs(key: str, fn: Callable, knobs: dict, seen: list[str]):
  parameters = inspect.signature(fn).parameters.values()
  takes = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
  for knob in knobs:
    if knob not in takes:
      menu = ", ".join([*takes, *OURS[1:]])
      raise ValueError(f"{key}: {fn.__name__} has no {knob}; it takes {menu}.")
  defaults = {knob: value for knob, value in takes.items() if value is not inspect.Parameter.empty}
  for knob in takes:
    if knob not in defaults | knobs:
      raise ValueError(f"{key}: {fn.__name__} needs {knob}.")
  try:
    inspect.signature(fn).bind(*seen, **knobs)
    if hasattr(fn, "check"):
      fn.check(**defaults | knobs)
  except TypeError as error:
    raise ValueError(f"{key}: {fn.__name__} cannot be called as a reward ({error}).") from None
  except ValueError as error:
    raise ValueError(f"{key}: {error}") from None


def _find(key: str, path: str) -> Callable:
  module_name, _, name = path.partition(":") if isinstance(path, str) else ("", "", "")
  if not (module_name and name):
    raise ValueError(f"{key}.fn = '{path}' must be 'file:function', as 'rules:integer_answer' is.")
  ours = f"{__name__}.{module_name}"
  try:
    is_ours = "." not in module_name and importlib.util.find_spec(ours) is not None
    module = importlib.import_module(ours if is_ours else module_name)
  except ModuleNotFoundError as error:
    if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
      raise  # the module is there, and something that it imports is not
    raise ValueError(
      f"{key}.fn = '{path}', but there is neither grpojax/rewards/{module_name}.py nor a module"
      f" '{module_name}'."
    ) from None
  fn = getattr(module, name, None)
  if name.startswith("_") or not callable(fn) or not _scope(fn):
    menu = [n for n, f in vars(module).items() if inspect.isfunction(f) and _scope(f)]
    where = f"grpojax/rewards/{module_name}.py" if is_ours else module.__file__
    raise ValueError(
      f"{key}.fn = '{path}', but the rewards in {where} (functions whose first parameter is"
      f" `sample`, `samples` or `group`) are only {', '.join(menu) or 'none'}."
    )
  return fn


def _scope(fn: Callable) -> str:
  first = next(iter(inspect.signature(fn).parameters), "")
  return first if first in ("sample", "samples", "group") else ""


def samples(examples, completions, lengths, ended) -> list[list[Sample]]:
  """Returns [P][G] of P rows of the dataset, P lists of G texts, lengths [P, G] in tokens, ended [P, G]."""
  return [
    [Sample(text, example, int(n), bool(end)) for text, n, end in zip(*rows, strict=True)]
    for example, *rows in zip(examples, completions, lengths, ended, strict=True)
  ]


def begin(rewards: Rewards, groups: list[list[Sample]]) -> dict[str, Future]:
  """Asks the rewards that are `async def` about completions [P][G], and waits for no answer.

  Returns name -> future of what its calls returned or raised: one for each completion that it is asked
  about, or one for all.
  """
  begun = {}
  for reward in rewards.all:
    if reward.awaits:
      asked = [one for group in groups if routing.asks(reward.only, group[0].example) for one in group]
      together = [asked] if asked else []
      begun[reward.name] = awaited.begin(map(reward.fn, together if reward.sees == "samples" else asked))
  return begun


def score(
  rewards: Rewards, groups: list[list[Sample]], begun: Mapping[str, Future] | None = None
) -> Graded:  # fmt: skip
  """Runs every reward on every completion [P][G]; an error in a reward costs a row, not the run.

  A row for which some reward that is asked raised, abstained, or gave no finite number is not valid and has
  reward 0, and is counted.  `begun` is what `begin` returned for these completions, None: begin now.
  """
  shape = len(groups), len(groups[0])
  total, valid = np.zeros(shape, np.float32), np.ones(shape, bool)
  begun = begin(rewards, groups) if begun is None else begun
  parts, known, counts, first_error = {}, {}, {}, ""
  for reward in rewards.all:
    asked = np.array([routing.asks(reward.only, group[0].example) for group in groups])
    accuracy = parts.get("accuracy", total)[asked].tolist()
    fn = awaited.told(begun[reward.name]) if reward.awaits else reward.fn
    graded = _grade_all(reward, fn, [group for group, on in zip(groups, asked, strict=True) if on], accuracy)
    part, gave = np.full(shape, np.nan, np.float32), np.zeros(shape, bool)
    if graded:
      part[asked] = [[value for value, _ in row] for row in graded]
      gave[asked] = [[not missing for _, missing in row] for row in graded]
    parts[reward.name], known[reward.name] = part, gave
    total += np.where(asked[:, None], np.float32(reward.weight) * part, 0)
    valid &= gave | ~asked[:, None]
    missing = [why for row in graded for _, why in row if why]
    errors = [why for why in missing if why != _ABSTAINED]
    counts[f"rewards/{reward.name}/failed"] = len(errors)
    counts[f"rewards/{reward.name}/abstained"] = len(missing) - len(errors)
    if errors and not first_error:
      first_error = f"Reward '{reward.name}' {errors[0]}."
  return Graded(
    np.where(valid, total, np.float32(0)), parts["accuracy"], valid, known, parts, counts, first_error
  )


def _grade_all(reward: Reward, fn: Callable, groups: list[list[Sample]], accuracy: list) -> list[list]:
  """Returns [P][G] of (value, ""), or (0, why the completion has no value), as `fn` grades for the reward."""
  if not groups:
    return []
  if reward.sees == "sample":
    return [[_number(*_call(fn, sample)) for sample in group] for group in groups]
  if reward.sees == "group":
    return [_grade_list(fn, *seen) for seen in zip(groups, accuracy, strict=True)]
  graded = iter(_grade_list(fn, [sample for group in groups for sample in group]))
  return [[next(graded) for _ in group] for group in groups]


def _grade_list(fn: Callable, samples: list[Sample], *others) -> list[tuple[float, str]]:
  """Calls a function that grades several samples at once, and fails all of them if the call fails."""
  values, error = _call(lambda: list(fn(samples, *others)))
  if not error and len(values) != len(samples):
    error = f"gave {len(values)} numbers for {len(samples)} completions"
  return [_number(value, error) for value in ([None] * len(samples) if error else values)]


def _call(fn: Callable, *seen) -> tuple[Any, str]:
  try:
    return fn(*seen), ""
  except (KeyboardInterrupt, SystemExit):
    raise
  except BaseException as error:  # verifiers have timeouts that are no Exception
    return None, f"raised {error!r:.200}"


def _number(value, error: str = "") -> tuple[float, str]:
  if error:
    return 0.0, error
  if isinstance(value, BaseException):
    return 0.0, f"raised {value!r:.200}"
  if value is None:
    return 0.0, _ABSTAINED
  is_number = isinstance(value, numbers.Real | np.bool_)
  if not is_number or not abs(value) <= _FLOAT32_MAX:  # NaN is not <= either
    return 0.0, f"gave a {type(value).__name__} that is no finite number in float32"
  return float(value), ""
