"""FrozenLake of gymnasium on random maps: from the corner to G over the ice F, and into no hole H.

    PFFH
    FFFF
    HFHF
    FFFG

P is the player.  The reward is 1 at G, and 0 else; a hole ends the episode.
"""

import random
from collections import deque

from gymnasium.envs.toy_text import frozen_lake as gymnasium_lake

from grpojax.rollout.envs import moves
from grpojax.rollout.envs.toy_text import ToyText

_STEPS = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}


class FrozenLake(ToyText):
  """`frozen` is the share of the fields that are no holes, gymnasium's 0.8; every map has a way.

  On `slippery` ice a move goes where it should in one of three cases, and to either side in the others.
  """

  words = tuple(_STEPS)
  about = "Cross the ice: you are P, F is ice, H a hole and G the goal. Say left, down, right or up."

  def __init__(
    self,
    size: int = 6,
    frozen: float = 0.8,
    slippery: bool = False,
    max_steps: int = 100,
    rules: bool = False,
  ):
    super().__init__(max_steps, rules)
    if not 2 <= size <= 32 or not 0 < frozen <= 1:
      raise ValueError(f"size = {size} must be from 2 to 32, and frozen = {frozen} in 0..1 and above 0.")
    self.size, self.frozen, self.slippery = size, frozen, slippery

  def start(self, number: int):
    lake = gymnasium_lake.generate_random_map(self.size, self.frozen, seed=number)
    self._lake, self._distance = lake, _distances(lake)
    return gymnasium_lake.FrozenLakeEnv(desc=lake, is_slippery=self.slippery)

  def board(self) -> str:
    rows = list(self._lake)
    row, column = self._place()
    rows[row] = rows[row][:column] + "P" + rows[row][column + 1 :]
    return "\n".join(rows)

  def best(self) -> list[str]:
    """Returns the moves on a shortest way to G, as if no ice were slippery."""
    row, column = self._place()
    here = self._distance[row, column]
    return [word for word, (r, c) in _STEPS.items() if self._distance.get((row + r, column + c), here) < here]

  def demonstrate(self, rng: random.Random, wrong: float) -> str:
    """Returns a planner's move; in a share `wrong` of the calls, one drawn at random from all."""
    return moves.err(rng, wrong, self.best(), self.words)

  def _place(self) -> tuple[int, int]:
    return divmod(int(self.game.s), self.size)


def _distances(lake: list[str]) -> dict[tuple[int, int], int]:
  """Returns the number of moves to G from each field that it can be reached from."""
  goal = (len(lake) - 1, len(lake) - 1)
  distance, frontier = {goal: 0}, deque([goal])
  while frontier:
    row, column = frontier.popleft()
    for r, c in _STEPS.values():
      near = (row - r, column - c)
      on_board = 0 <= near[0] < len(lake) and 0 <= near[1] < len(lake)
      if on_board and near not in distance and lake[near[0]][near[1]] != "H":
        distance[near] = distance[row, column] + 1
        frontier.append(near)
  return distance


make = FrozenLake
