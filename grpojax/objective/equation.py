"""The objective of a config in words: the loss with its penalties, and the function of each slot."""

import inspect
from typing import NamedTuple

from ml_collections import ConfigDict

from grpojax.objective.build import SLOTS, find, knobs_of

SYMBOLS = {  # of what a slot gives, in `loss`; slots in the order in which they are computed
  "shape": "R", "advantage": "A", "rescale": "A", "select": "w", "correct": "c", "aggregate": "w",
  "ratio": "ℓ", "surrogate": "J", "veto": "c", "penalty": "D",
}  # fmt: skip


class Term(NamedTuple):
  """One function of the objective."""

  symbol: str
  slot: str
  function: str  # with all its knobs, also those that the config leaves as they are
  formula: str  # the first line of its docstring


def loss(objective: ConfigDict) -> str:
  """Returns the loss as one line, e.g. "loss(θ) = Σ w · (0.04 · kl_k3 − c · J(ℓ, A))"."""
  costs = [f"{each.beta:g} · {_name(each)}" for _, each in sorted(objective.penalty.items())]
  trust = "c · " if len(objective.correct) + len(objective.veto) else ""
  costs = f"{' + '.join(costs)} " if costs else ""
  return f"loss(θ) = Σ w · ({costs}− {trust}J(ℓ, A))"


def terms(objective: ConfigDict) -> list[Term]:
  """Returns the functions of a legal config.objective, but for those that change nothing."""
  found = []
  for slot, symbol in SYMBOLS.items():
    chosen = [objective[slot]] if slot in SLOTS else [each for _, each in sorted(objective[slot].items())]
    found += [_term(symbol, slot, each) for each in chosen if each.fn != "identity"]
  return found


def _term(symbol: str, slot: str, chosen: ConfigDict) -> Term:
  fn = find(slot, chosen.fn, f"config.objective.{slot}")
  knobs = {key: parameter.default for key, parameter in knobs_of(fn).items()}
  knobs |= {key: value for key, value in chosen.items() if key != "fn"}
  words = [_name(chosen), *(f"{key}={value}" for key, value in knobs.items())]
  return Term(symbol, slot, " ".join(words), (inspect.getdoc(fn) or "").partition("\n")[0])


def _name(chosen: ConfigDict) -> str:
  return chosen.fn.rpartition(":")[2]
