"""Sizes of the laboratory's computation."""

from typing import NamedTuple


class Size(NamedTuple):
  """Each policy is another draw, at a stage of training of its own; groups are a sample."""

  policies: int
  groups: int  # of each policy


STAGES = (0.2, 0.8)  # share of the best return, from the first policy to the last
PILOT = 100  # groups of each policy, from which is foretold which bias can be told from zero
DEFAULT = Size(policies=8, groups=800)
FAST = Size(policies=2, groups=200)
