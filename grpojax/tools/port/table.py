"""What a peer's table holds.  It is data: formulas are texts over the peer's keys, as in a spreadsheet.

A text that starts with "=" is a formula, and so is every `when`; all other values are what they are.
Formulas are those of our tables.  Of a user's file they see values alone.
"""

import ast
import functools
from types import SimpleNamespace
from typing import Any, NamedTuple

HELPERS = {"len": len, "min": min, "max": max, "int": int, "float": float, "str": str, "round": round}


class Flag(NamedTuple):
  """One of our keys, and how it follows from the peer's.  Of two rows that apply, the later one counts."""

  key: str  # of config; "objective.penalty.kl" is one entry of a list
  value: Any  # a value or a formula, also inside a dict
  when: str = "True"


class Word(NamedTuple):
  """A word that names another formula there than it does here."""

  keys: str  # of the peer, separated by spaces
  there: str
  here: str
  when: str = "True"
  remains: bool = False  # the printed flags do not make up for it


class Gap(NamedTuple):
  """A key, at a value that has no counterpart here."""

  key: str
  why: str
  when: str


class Peer(NamedTuple):
  """All that is known of a peer."""

  name: str
  version: str  # that the table describes
  keys: dict[str, Any]  # those that decide what is computed -> the peer's defaults
  derived: dict[str, str]  # more names for formulas, in their order
  flags: tuple[Flag, ...]
  words: tuple[Word, ...]
  gaps: tuple[Gap, ...]
  apart: dict[str, str]  # what other keys are about -> their names, separated by spaces; "a.*" for a section
  calls: dict[str, dict[str, Any]] = {}  # noqa: RUF012  # class in a Python file -> its own defaults
  prefix: dict[str, str] = {}  # noqa: RUF012  # long names of sections -> the short ones that the table uses
  foreign: str = ""  # whose keys stand beside the peer's own, so that an unknown one need be no mistake


@functools.cache
def names(formula: str) -> frozenset[str]:
  """Returns the keys that a formula reads, dotted."""
  found, inner = set(), set()
  for node in ast.walk(ast.parse(formula, mode="eval")):
    if isinstance(node, ast.Attribute | ast.Name) and node not in inner:
      parts, at = [], node
      while isinstance(at, ast.Attribute):
        parts.append(at.attr)
        at = at.value
        inner.add(at)
      if isinstance(at, ast.Name):
        found.add(".".join([at.id, *reversed(parts)]))
  return frozenset(found)


def formulas(value: Any) -> list[str]:
  """Returns the formulas in a value."""
  if isinstance(value, dict):
    return [formula for inner in value.values() for formula in formulas(inner)]
  return [value[1:]] if isinstance(value, str) and value.startswith("=") else []


def evaluate(value: Any, scope: dict[str, Any]) -> Any:
  """Returns the value with its formulas worked out."""
  if isinstance(value, dict):
    return {key: evaluate(inner, scope) for key, inner in value.items()}
  return calculate(value[1:], scope) if isinstance(value, str) and value.startswith("=") else value


def calculate(formula: str, scope: dict[str, Any]) -> Any:
  """Returns what a formula of a table is with the peer's values."""
  return eval(compile(formula, "<table>", "eval"), {"__builtins__": HELPERS}, scope)


def scope_of(values: dict[str, Any]) -> dict[str, Any]:
  """Returns {"a.b": 1} as names that formulas may write: a.b."""
  scope: dict[str, Any] = {}
  for key, value in values.items():
    *path, leaf = key.split(".")
    if not path:
      scope[leaf] = value
      continue
    node = scope.setdefault(path[0], SimpleNamespace())
    for part in path[1:]:
      if not hasattr(node, part):
        setattr(node, part, SimpleNamespace())
      node = getattr(node, part)
    setattr(node, leaf, value)
  return scope
