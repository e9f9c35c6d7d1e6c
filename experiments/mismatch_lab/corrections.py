"""Corrections by name: RLOO with one slot more, and which log-probs it reads.  Bounds are their defaults."""

from typing import NamedTuple

from experiments.estimator_lab import variants
from grpojax.objective import Objective

G = 2  # completions of a group: all pairs of answers can be listed


class Correction(NamedTuple):
  """Slots of config.objective beside RLOO's, and whose log-probs the learner takes."""

  slots: dict
  learner: str = "own"  # or what replays the sampler's "routing" or "kept" sets


def correct(fn: str, **knobs) -> Correction:
  return Correction({"correct": {"it": dict(fn=fn, **knobs)}})


NONE = Correction({})
EXACT = correct("sequence_truncated_is", high=1e8)
CORRECTIONS = {
  "none": NONE,
  "Π ρ, not truncated": EXACT,
  "TIS": correct("truncated_is", high=2.0),
  "TIS of sequences": correct("sequence_truncated_is", high=2.0),
  "IcePop": correct("icepop", low=0.5, high=5.0),
  "MIS": correct("masked_is", high=2.0),
  "WTRS": correct("worst_token", low=1e-4),
  "geometric": correct("geometric_rejection", low=0.999, high=1.001),
  "DPPO-TV": Correction(
    dict(shape={"it": dict(fn="bypass")}, surrogate=dict(fn="dppo_tv", low=0.2, high=0.2))
  ),
  "OPSM": Correction({"veto": {"it": dict(fn="stale_failures", delta=1e-4)}}),
}
REPLAYS = {  # what some causes have beside them
  "flipped experts": {"R3": Correction({}, "routing")},
  "stale mixture": {
    "R2, R3": Correction({}, "routing"),
    "R2, R3 and TIS": CORRECTIONS["TIS"]._replace(learner="routing"),
  },
  "top-p": {"kept set": Correction({}, "kept")},
  "top-p, truncated policy": {"kept set": Correction({}, "kept")},
}


def of(cause: str) -> dict[str, Correction]:
  """Returns the corrections that are measured for a cause, by name."""
  return CORRECTIONS | REPLAYS.get(cause, {})


def build(correction: Correction) -> Objective:
  """Returns RLOO with the correction; ĝ is a mean over completions of sums over tokens."""
  share = dict(fn="experiments.turns_lab.measure:per_trajectory", trajectories=G)
  return variants.build("rloo", aggregate=share, **correction.slots)
