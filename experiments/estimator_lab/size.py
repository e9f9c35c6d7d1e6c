"""Sizes of the laboratory's computation."""

from typing import NamedTuple


class Size(NamedTuple):
  """Policies and drifts are independent draws; groups are a sample where enumeration is too large."""

  policies: int
  groups: int
  lengths: tuple[int, ...]  # response budgets of the counting world, in tokens
  group_sizes: tuple[int, ...]


DEFAULT = Size(policies=16, groups=4000, lengths=(4, 8, 16, 32, 64), group_sizes=(2, 3, 4, 8, 16))
FAST = Size(policies=2, groups=400, lengths=(4, 16), group_sizes=(2, 4))
