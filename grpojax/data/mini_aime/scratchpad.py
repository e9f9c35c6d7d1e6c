"""Scratchpads: the worked demonstration of a row, and the two flaws that a demonstration may have."""

import random

from grpojax.data.mini_aime.problems import LARGEST, Step, operand, run

_AGAIN = 0.7  # a rambler checks 1 + Geometric steps again: 3.3 on average, without an upper bound
_SLIPS = (-10, -2, -1, 1, 2, 10)


def write(steps: list[Step], values: list[int], rechecks: list[int]) -> str:
  """Writes "7+5=12;12*6=72".  `rechecks` lists the steps that are done again, each as often."""
  lines = []
  for i, (operation, left, right) in enumerate(steps):
    line = f"{operand(left, values)}{operation}{operand(right, values)}={values[i]}"
    lines += [line] + [f"hm, again: {line}"] * rechecks.count(i)
  return ";".join(lines)


def slipped_values(steps: list[Step], rng: random.Random) -> list[int]:
  """Returns the values with one step off by a little: every value in 0..999 and the answer not right."""
  right = run(steps)
  candidates = [run(steps, at, slip) for at in range(len(steps)) for slip in _SLIPS]
  return rng.choice(
    [v for v in candidates if v[-1] != right[-1] and all(0 <= x <= LARGEST for x in v)]
  )


def draw_rechecks(steps: int, rng: random.Random) -> list[int]:
  rechecks = [rng.randrange(steps)]
  while rng.random() < _AGAIN:
    rechecks.append(rng.randrange(steps))
  return rechecks
