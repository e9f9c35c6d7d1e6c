"""Checks each key by itself: that it is there, of its default's kind, and allowed by its row of the table."""

import math
from numbers import Integral, Real
from typing import Any

from ml_collections import ConfigDict

from grpojax.config import recipe, schema
from grpojax.recipes import base

_LARGEST = 2**31 - 1  # an integer of the device has 32 bits
_LARGEST_FLOAT = 3.4e38  # nor does it have a larger one of these
_SHOWN = 60  # characters of a value in a message


def check(c: ConfigDict) -> None:
  """Raises ValueError for the first key that is missing, unknown, of another kind, or not allowed."""
  _check_scale(c)
  known = base.get_config(c.get("scale", "mini"))
  known.model = base.get_config("local" if "path" in c.get("model", {}) else "mini").model
  _check_section("config", c, known)
  values = schema.flatten(c.to_dict())
  in_order = [key for key in schema.KEYS if key in values]  # what others refer to comes first
  for key in dict.fromkeys([*in_order, *values]):
    _check_value(key, values[key], schema.row(key))


def _check_scale(c: ConfigDict) -> None:
  """Raises ValueError for a model or data of one's own beside keys of the embedded task's scales."""
  model, data = (c[name] if isinstance(c.get(name), ConfigDict) else {} for name in ("model", "data"))
  task = str(data.get("task", ""))
  if "path" in model and "hidden_size" in model:
    wrong = "model.path"
  elif "path" in data and task == "mini_aime":
    wrong = "data.path"
  elif "rambling" in data and (task == "local" or task.startswith("reasoning_gym:")):
    wrong = "data.task"
  else:
    return
  raise ValueError(
    f"config.{wrong} is for a model and data of one's own, and scale {c.get('scale')!r} is the embedded"
    " task's; add ':local' to the recipe, as in --config=gspo:local."
  )


def show(value: Any) -> str:
  """Returns a value as one short line of a message."""
  text = repr(value)
  return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _check_section(at: str, c: ConfigDict, known: ConfigDict) -> None:
  """Raises ValueError unless `c` has the keys of `known` and their kinds.

  Of an open section these are the keys that have rows; what is beside them is not looked at.
  """
  name = at.removeprefix("config.")
  is_open = name in schema.KEYS
  for key, default in known.items():
    where = f"{at}.{key}"
    if is_open and f"{name}.{key}" not in schema.KEYS:
      continue
    if key not in c:
      raise ValueError(f"{where} is missing; override single keys of {at}, not all of it.")
    if not _alike(c[key], default):
      wanted = "a dict" if isinstance(default, ConfigDict) else f"as {default!r} is"
      raise ValueError(f"{where} = {show(c[key])} is {type(c[key]).__name__}, but must be {wanted}.")
    if isinstance(default, ConfigDict):
      _check_section(where, c[key], default)
  for key in c:
    if key not in known and not is_open:
      raise ValueError(f"{at} has no {show(key)}; {_meant(at, key, known)}")


def _meant(at: str, key: str, known: ConfigDict) -> str:
  """Returns the end of a sentence: the keys that an unknown one may stand for, or else all of the section."""
  elsewhere = [f"config.{full}" for full in schema.KEYS if full.rpartition(".")[2] == key]
  if near := elsewhere or [f"{at}.{name}" for name in recipe.nearest(key, known)]:
    return f"did you mean {' or '.join(near)}?"
  return f"it takes {', '.join(known)}."


def _alike(value: Any, default: Any) -> bool:
  """Returns True where both are of one kind; an integer is a number too."""
  for kind in (bool, str, ConfigDict):
    if isinstance(default, kind) or isinstance(value, kind):
      return isinstance(default, kind) and isinstance(value, kind)
  return isinstance(value, Integral if isinstance(default, int) else Real)


def _check_value(key: str, value: Any, row: schema.Key) -> None:
  """Raises ValueError for what the row of the key does not allow."""
  if isinstance(value, Real) and not isinstance(value, bool):
    _check_number(key, value, row)
  elif row.choices and value not in row.choices:
    raise ValueError(f"config.{key} = {show(value)}; it is {' or '.join(map(repr, row.choices))}.")


def _check_number(key: str, value: Real, row: schema.Key) -> None:
  """Raises ValueError for a number that is not finite or out of its range, and in an open section for NaN."""
  if value != value or (not row.open and not abs(value) < math.inf):
    raise ValueError(f"config.{key} = {value} is no finite number.")
  if row.open:
    return
  if isinstance(value, int) and value > _LARGEST:
    raise ValueError(f"config.{key} = {show(value)} is more than {_LARGEST}, the largest whole number here.")
  if abs(value) > _LARGEST_FLOAT:
    raise ValueError(f"config.{key} = {value} is more than {_LARGEST_FLOAT}, the largest number of 32 bits.")
  if row.range and not row.range.allows(value):
    raise ValueError(f"config.{key} = {value} {row.range.refusal}")
