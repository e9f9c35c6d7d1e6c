"""Sizes of the laboratory's computation."""

from typing import NamedTuple


class Size(NamedTuple):
  """Each policy is another decoder, at a stage of training of its own; nothing else is a sample."""

  policies: int


STAGES = (0.5, 0.85)  # expected reward, from the first policy to the last
DEFAULT = Size(policies=6)
FAST = Size(policies=2)
