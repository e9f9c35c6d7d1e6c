"""What every config must be, whatever it describes: complete, of the right kinds, with numbers that can be.

What one key asks of another is config.py's.
"""

import math
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any

from ml_collections import ConfigDict

from configs import base
from grpojax.runtime import sharding

_LARGEST = 2**31 - 1  # an integer of the device has 32 bits
_DEVICES = 1024  # of one machine, pretended
_OPEN = ("reward", "data", "process.knobs")  # their keys follow from what they choose; so do the slots'
_ANY_SIGN = ("objective", "reward", "data")  # as the functions there say
_OF_DATA = ("task", "prompt_budget", "overlong_prompts", "template", "system", "chat", "mixture")
_SIGNED = ("adaptive_group.positive", *(f"mesh.{axis}" for axis in sharding.AXES))
_SHARES = (
  "eval.min_p", "rollout.min_p", "guard.rate", "guard.failed_rewards", "difficulty.too_hard",
  "difficulty.too_easy", "optimizer.b1", "optimizer.b2",
  "optimizer.momentum", "optimizer.decay_rate",
)  # fmt: skip
_POSITIVE = ("optimizer.clip_norm", "guard.rate", "model.rope_theta")
_SIZES = (
  "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
  "intermediate_size", "moe_intermediate_size",
)  # fmt: skip
_DTYPES = ("float32", "bfloat16", "float16")
_SHOWN = 60  # characters of a value in a message


def check(c: ConfigDict) -> None:
  """Raises ValueError for the first key that is missing, unknown, of another kind, or no possible number."""
  known = base.get_config(c.get("scale", "mini"))
  known.model = base.get_config("local" if "path" in c.get("model", {}) else "mini").model
  _check_keys("config", c, known)
  for key in _OF_DATA:
    if key not in c.data:
      raise ValueError(f"config.data.{key} is missing; override single keys of config.data, not all of it.")
  for key, value in _numbers(c):
    _check_number(key, value)
  for key in ("dtype", "param_dtype"):
    if c.model.get(key, "float32") not in _DTYPES:
      raise ValueError(f"config.model.{key} = {show(c.model[key])}; it is {' or '.join(_DTYPES)}.")
  if c.mesh.cpu_devices > _DEVICES:
    raise ValueError(f"config.mesh.cpu_devices = {c.mesh.cpu_devices} is more than {_DEVICES}; lower it.")


def show(value: Any) -> str:
  """A value in a message of one line, whatever it is."""
  text = repr(value)
  return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _check_keys(at: str, c: ConfigDict, known: ConfigDict) -> None:
  for key, default in known.items():
    where = f"{at}.{key}"
    if key not in c:
      raise ValueError(f"{where} is missing; override single keys of {at}, not all of it.")
    if not _alike(c[key], default):
      wanted = "a dict" if isinstance(default, ConfigDict) else f"as {default!r} is"
      raise ValueError(f"{where} = {show(c[key])} is {type(c[key]).__name__}, but must be {wanted}.")
    is_open = at == "config.objective" or where.removeprefix("config.") in _OPEN
    if isinstance(default, ConfigDict) and len(default) and not is_open:
      _check_keys(where, c[key], default)
  for key in c:
    if key not in known:
      raise ValueError(f"{at} has no {show(key)}; it takes {', '.join(known)}.")


def _alike(value: Any, default: Any) -> bool:
  for kind in (bool, str, ConfigDict):
    if isinstance(default, kind) or isinstance(value, kind):
      return isinstance(default, kind) and isinstance(value, kind)
  return isinstance(value, Integral if isinstance(default, int) else Real)


def _numbers(c: ConfigDict, at: str = "") -> Iterator[tuple[str, Real]]:
  for key, value in c.items():
    if isinstance(value, ConfigDict):
      yield from _numbers(value, f"{at}{key}.")
    elif isinstance(value, Real) and not isinstance(value, bool):
      yield f"{at}{key}", value


def _check_number(key: str, value: Real) -> None:
  section = key.split(".")[0]
  if value != value or (section not in _ANY_SIGN and not abs(value) < math.inf):
    raise ValueError(f"config.{key} = {value} is no finite number.")
  if section in _ANY_SIGN:
    return
  if isinstance(value, int) and value > _LARGEST:
    raise ValueError(f"config.{key} = {show(value)} is more than {_LARGEST}, the largest whole number here.")
  if value < 0 and key not in _SIGNED:
    raise ValueError(f"config.{key} = {value} must not be negative.")
  if value > 1 and key in _SHARES:
    raise ValueError(f"config.{key} = {value} is a share, and lies in 0 to 1.")
  if value == 0 and key in _POSITIVE:
    raise ValueError(f"config.{key} = {value} must be positive.")
  if value < 1 and section == "model" and key.removeprefix("model.") in _SIZES:
    raise ValueError(f"config.{key} = {value} must be at least 1.")
