"""Both clip ranges of a token-level ratio: is it the width that matters, or the asymmetry?

grpojax sweep --config=configs/dapo.py --sweep=configs/sweeps/clip_ranges.py
"""

from itertools import product


def get_sweep() -> list[dict]:
  lows, highs = (0.1, 0.2, 0.3), (0.2, 0.28, 0.4)
  return [
    {"objective.surrogate.low": low, "objective.surrogate.high": high} for low, high in product(lows, highs)
  ]
