"""A peer's keys -> our flags, words that mean another formula, gaps: every key of the file is in it."""

import difflib
import fnmatch
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from grpojax.objective.build import SLOTS, functions, knobs_of
from grpojax.recipes import base
from grpojax.tools.port.table import Flag, Gap, Peer, Word, calculate, evaluate, formulas, names, scope_of

_MISSPELT = 0.91  # so alike are a key and another that it was meant to be
RECIPE = "base:local"  # GRPO without KL, on a model and data of one's own


class Ported(NamedTuple):
  """Translation of one file: our flags, the words that differ, and the gaps."""

  flags: dict[str, Any]  # that differ from the recipe
  sources: dict[str, list[str]]  # of our keys, those that are as in the recipe too -> the peer's keys
  words: list[Word]
  gaps: list[Gap]
  plain: list[str]  # keys at values where nothing is missing here
  idle: list[str]  # keys that the peer does not read with these settings
  apart: dict[str, list[str]]  # what it is about -> keys
  unread: dict[str, str]  # keys whose values are no literals, and words that are no keys -> what to say
  foreign: list[str]


def translate(peer: Peer, given: dict[str, Any], unread: dict[str, str]) -> Ported:
  """Translates what a file sets, and the peer's defaults for all that it does not.

  Raises ValueError for keys that the peer has not, and for values that its formulas cannot take.
  """
  foreign = _unknown(peer, [*given, *unread])
  scope = scope_of(peer.keys | {key: _like(peer.keys.get(key), value) for key, value in given.items()})
  scope["given"] = frozenset(given)
  for name, formula in peer.derived.items():
    scope[name] = _calculate(peer, formula, scope)
  applied = {flag.key: flag for flag in peer.flags if _calculate(peer, flag.when, scope)}
  gaps = [gap for gap in peer.gaps if _calculate(peer, gap.when, scope)]
  values = {key: _evaluate(peer, flag, scope) for key, flag in applied.items()}
  read = {key: _read(peer, flag) for key, flag in applied.items()}
  recipe = base.get_config("local")
  said = {key for keys in read.values() for key in keys} | {gap.key for gap in gaps}
  checked = set().union(*(_keys(peer, gap.when) for gap in peer.gaps)) & {gap.key for gap in peer.gaps}
  return Ported(
    flags={key: value for key, value in values.items() if not _same(recipe, key, value)},
    sources=read,
    words=[word for word in peer.words if _calculate(peer, word.when, scope)],
    gaps=gaps,
    plain=[key for key in given if key in checked - said],
    idle=[key for key in given if key in peer.keys and key not in said | checked],
    apart=_apart(peer, given),
    unread=unread,
    foreign=foreign,
  )


def _unknown(peer: Peer, keys: Iterable[str]) -> list[str]:
  """Returns keys that may be of others beside the peer.  Raises ValueError for those that are nobody's."""
  spelt = {name for patterns in peer.apart.values() for name in patterns.split()}
  unknown, wrong = [], {}
  for key in keys:
    if key in peer.keys or key in spelt or not re.fullmatch(r"[\w.]+", key):
      continue
    match = difflib.get_close_matches(key, peer.keys, n=1, cutoff=_MISSPELT)
    if match or not (_kind(peer, key) or peer.foreign):
      wrong[key] = match
    elif not _kind(peer, key):
      unknown.append(key)
  if wrong:
    said = [f"{key} (did you mean {match[0]}?)" if match else key for key, match in wrong.items()]
    raise ValueError(f"{peer.name} {peer.version} has no {', '.join(said)}; take out what is not its own.")
  return unknown


def _kind(peer: Peer, key: str) -> str:
  """Returns what a key without meaning for the mathematics is about; "" for others."""
  return next(
    (
      kind
      for kind, patterns in peer.apart.items()
      if any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns.split())
    ),
    "",
  )


def _apart(peer: Peer, given: dict[str, Any]) -> dict[str, list[str]]:
  found: dict[str, list[str]] = {}
  for key in given:
    if key not in peer.keys and (kind := _kind(peer, key)):
      found.setdefault(kind, []).append(key)
  return found


def _like(default: Any, value: Any) -> Any:
  """Returns the value as a whole number, where the peer's default is one: 1e3 is 1000."""
  if type(default) is int and isinstance(value, float) and value == int(value):
    return int(value)
  return value


def _calculate(peer: Peer, formula: str, scope: dict[str, Any]) -> Any:
  try:
    return calculate(formula, scope)
  except (TypeError, ValueError, ZeroDivisionError, AttributeError, IndexError, KeyError) as error:
    keys = ", ".join(sorted(_keys(peer, formula)))
    raise ValueError(f"{peer.name}'s {keys} cannot be read together: {error}; see their values.") from error


def _evaluate(peer: Peer, flag: Flag, scope: dict[str, Any]) -> Any:
  try:
    return evaluate(flag.value, scope)
  except (TypeError, ValueError, ZeroDivisionError, AttributeError, IndexError, KeyError) as error:
    keys = ", ".join(_read(peer, flag))
    raise ValueError(f"{peer.name}'s {keys} cannot be read together: {error}; see their values.") from error


def _read(peer: Peer, flag: Flag) -> list[str]:
  """Returns the peer's keys that a row reads, through derived names too."""
  found = set().union(*(_keys(peer, formula) for formula in [flag.when, *formulas(flag.value)]))
  return [key for key in peer.keys if key in found]


def _keys(peer: Peer, formula: str) -> set[str]:
  found = set()
  for name in names(formula):
    if name in peer.derived:
      found |= _keys(peer, peer.derived[name])
    else:
      found |= {key for key in peer.keys if name == key or name.startswith(f"{key}.")}  # key.split(...)
  return found


def _same(recipe: ConfigDict, key: str, value: Any) -> bool:
  """Returns True where the recipe has the value already; a slot's knobs that are left out are defaults."""
  node = recipe
  for part in key.split("."):
    if not isinstance(node, ConfigDict) or part not in node:
      return False
    node = node[part]
  if isinstance(value, dict):
    slot = key.removeprefix("objective.")
    return isinstance(node, ConfigDict) and _whole(slot, node.to_dict()) == _whole(slot, value)
  return node == value


def _whole(slot: str, choice: dict) -> dict:
  if slot not in SLOTS:
    return choice
  fn = functions(slot)[choice["fn"]]
  return {name: parameter.default for name, parameter in knobs_of(fn).items()} | choice
