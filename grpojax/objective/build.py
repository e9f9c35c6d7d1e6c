"""config.objective -> Objective.  Every mistake in it is refused here, before a device is touched.

`config.objective.ratio.fn = 'sequence'` is `sequence` in grpojax/objective/ratio.py; the other keys
are its keyword-only arguments.  `fn = 'my.module:my_ratio'` is the same for a function of your own.
There is nothing to register; what starts with an underscore is not on the menu.
"""

import importlib
import inspect
import math
from collections.abc import Callable
from numbers import Real
from typing import NamedTuple

from jax.tree_util import Partial
from ml_collections import ConfigDict

from grpojax.objective.formula import Correction, Objective
from grpojax.objective.terms import Component, Preference

SLOTS = ("advantage", "rescale", "ratio", "surrogate", "aggregate")
# Any name -> a slot, in the names' order.
LISTS = ("shape", "select", "correct", "veto", "batch_veto", "penalty", "component", "preference")
MENUS = (*SLOTS, *LISTS, "stream")  # files of grpojax/objective/ whose functions a config may name
# What an entry of a list needs beside fn and its arguments.
BESIDE = dict(
  penalty=dict(beta="the factor of this penalty in the loss"),
  component=dict(
    coef="the factor of this component in the loss",
    stream="the tokens that it counts, a function of grpojax/objective/stream.py",
  ),
  preference=dict(coef="the factor of these pairs in the loss"),
)


class Bound(NamedTuple):
  """A function with its words and switches.  Equal and hashable, so that jit's cache hits."""

  fn: Callable
  static: tuple[tuple[str, object], ...]

  def __call__(self, *args, **numbers):
    return self.fn(*args, **dict(self.static), **numbers)


def build(config: ConfigDict) -> Objective:
  """Builds the Objective of `config.objective`.  Raises ValueError naming the key and what to change."""
  config = ConfigDict(config).to_dict()
  unknown = sorted(set(config) - {*SLOTS, *LISTS})
  if unknown:
    raise ValueError(
      f"config.objective has no '{unknown[0]}'; it takes {', '.join(SLOTS + LISTS)}."
    )
  single = {slot: _slot(slot, config.get(slot), f"config.objective.{slot}") for slot in SLOTS}
  lists = {
    slot: tuple(
      _entry(slot, knobs, f"config.objective.{slot}.{label}")
      for label, knobs in sorted(config.get(slot, {}).items())
    )
    for slot in LISTS
  }
  return Objective(**single, **lists)


def preference_loss(config: ConfigDict) -> Preference:
  """Builds the loss of `config.preference.loss`, of pairs with coef 1.  Raises ValueError as `build` does."""
  return _entry("preference", ConfigDict(config).to_dict() | dict(coef=1.0), "config.preference.loss")


def bind(fn: Callable, **knobs) -> Partial:
  """Binds fn to its knobs.  Numbers become traced leaves; words, switches and None stay static."""
  static = {key: value for key, value in knobs.items() if isinstance(value, str | bool)}
  numbers = {key: value for key, value in knobs.items() if key not in static}
  return Partial(Bound(fn, tuple(sorted(static.items()))), **numbers)


def functions(slot: str) -> dict[str, Callable]:
  """Returns a slot's menu: the public functions that grpojax/objective/<slot>.py defines."""
  module = importlib.import_module(f"grpojax.objective.{slot}")
  return {
    name: fn
    for name, fn in vars(module).items()
    if inspect.isfunction(fn) and fn.__module__ == module.__name__ and not name.startswith("_")
  }


def knobs_of(fn: Callable) -> dict[str, inspect.Parameter]:
  """Returns a function's keyword-only parameters, which the config may set."""
  parameters = inspect.signature(fn).parameters
  return {k: p for k, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _entry(slot: str, knobs: dict, path: str):
  """Returns one member of a list, with what its slot keeps beside the function."""
  _require_slot(knobs, path)
  needed = BESIDE.get(slot, {})
  for key, what in needed.items():
    if key not in knobs:
      raise ValueError(f"{path} needs {key}, {what}.")
    if key != "stream":
      _check_kind(f"{path}.{key}", knobs[key], default=1.0)
  if slot == "penalty":
    return knobs["beta"], _slot(slot, _without(knobs, *needed), path)
  if slot == "component":
    stream = _slot("stream", dict(fn=knobs["stream"]), f"{path}.stream")
    return Component(knobs["coef"], stream, _slot(slot, _without(knobs, *needed), path))
  if slot == "preference":
    _check_sign(knobs, path)
    return Preference(knobs["coef"], _slot(slot, _without(knobs, *needed), path))
  if slot == "correct":
    rest = _without(knobs, "renormalize", "batch_normalize")
    switches = [bool(knobs.get(key, False)) for key in ("renormalize", "batch_normalize")]
    return Correction(*switches, _slot(slot, rest, path))
  return _slot(slot, knobs, path)


def _check_sign(knobs: dict, path: str) -> None:
  """Raises ValueError for a beta with which the rejected completion would be the one that is learned."""
  beta = knobs.get("beta", 1.0)
  if isinstance(beta, Real) and not 0 < beta < math.inf:
    raise ValueError(f"{path}.beta = {beta} must be positive and finite; below 0 the rejected is learned.")


def _slot(slot: str, knobs: dict, path: str) -> Partial:
  """Returns the bound function of a dict of fn and knobs."""
  _require_slot(knobs, path)
  fn, knobs = _find(slot, knobs["fn"], path), _without(knobs, "fn")
  takes = knobs_of(fn)
  menu = f"it takes {', '.join(takes)}" if takes else "it takes nothing but fn"
  for key in knobs:
    if key not in takes:
      raise ValueError(f"{path}: {fn.__name__} has no {key}; {menu}.")
  for key, parameter in takes.items():
    if parameter.default is inspect.Parameter.empty and key not in knobs:
      raise ValueError(f"{path}: {fn.__name__} needs {key}.")
  for key, value in knobs.items():
    _check_kind(f"{path}.{key}", value, takes[key].default)
  return bind(fn, **knobs)


def _check_kind(path: str, value: object, default: object) -> None:
  """Raises ValueError unless the knob is a word, switch or number as its default (or number or word)."""
  if value is default:
    return
  known = [kind for kind in (bool, str) if isinstance(default, kind)] or [Real]
  kinds = (*known, str) if default in (None, inspect.Parameter.empty) else tuple(known)
  if not isinstance(value, kinds) or isinstance(value, bool) is not (kinds == (bool,)):
    names = {bool: "True or False", str: "a word", Real: "a number"}
    raise ValueError(f"{path} = {value!r:.60} must be {' or '.join(names[kind] for kind in kinds)}.")


def _require_slot(knobs, path: str) -> None:
  if not isinstance(knobs, dict) or not isinstance(knobs.get("fn"), str):
    raise ValueError(f"{path} is {knobs!r}, but must be a dict of fn and its keyword arguments.")


def _find(slot: str, name: str, path: str) -> Callable:
  """Finds 'sequence' in grpojax/objective/<slot>.py, or the function that 'module:function' names."""
  if ":" not in name:
    menu = functions(slot)
    if name not in menu:
      raise ValueError(
        f"{path}.fn = '{name}', but grpojax/objective/{slot}.py has only {', '.join(menu)}."
      )
    return menu[name]
  module, function = name.split(":", 1)
  try:
    return getattr(importlib.import_module(module), function)
  except (ImportError, AttributeError, ValueError) as error:
    raise ValueError(f"{path}.fn = '{name}' cannot be imported: {error}.") from error


def _without(knobs: dict, *keys: str) -> dict:
  return {key: value for key, value in knobs.items() if key not in keys}
