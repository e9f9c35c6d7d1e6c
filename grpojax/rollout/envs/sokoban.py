"""Sokoban with one box: push it onto the goal.  Nothing pulls it back from a wall, so that mistakes last.

    #----
    -$---
    -@-.-
    --#--
    -----

@ is the player, $ the box, . the goal, # a wall and - the floor, as in XSB files; + is the player on the
goal, and * the box there.
"""

import functools
import random
from collections import deque

from grpojax.rollout.envs import moves
from grpojax.rollout.envs.interface import Turn

_STEPS = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}

Place = tuple[int, int]
State = tuple[Place, Place]  # of the player and of the box


class Sokoban:
  """The reward is 1 for the box on the goal, and 0 else.  A puzzle has a solution of at most `max_moves`.

  A field is a wall with probability `walls`, and the box starts at least two pushes from the goal.
  """

  about = "Push the box $ onto the goal . : you are @, # is a wall. Say left, down, right or up."

  def __init__(
    self, size: int = 5, walls: float = 0.1, max_moves: int = 16, max_steps: int = 40, rules: bool = False
  ):
    least = 4 if size == 3 else 2  # with fewer moves there is no puzzle
    if not 3 <= size <= 8 or not 0 <= walls <= 0.5 or not least <= max_moves <= max_steps:
      raise ValueError(
        f"size = {size} must be from 3 to 8, walls = {walls} in 0..0.5,"
        f" and max_moves = {max_moves} from {least} to max_steps = {max_steps}."
      )
    self.size, self.walls, self.max_moves, self.max_steps, self.rules = (
      size,
      walls,
      max_moves,
      max_steps,
      rules,
    )

  def reset(self, example: dict, seed: int) -> Turn:
    self.floor, self.goal, self.state = draw(int(example["number"]), self.size, self.walls, self.max_moves)
    self.steps = 0
    board = self.board()
    return Turn(f"{self.about}\n{board}" if self.rules else board, anchor=board)

  def step(self, action: str) -> Turn:
    self.steps += 1
    word = moves.read(action, tuple(_STEPS))
    if word:
      self.state = move(self.floor, self.state, word)
    board, done = self.board(), self.state[1] == self.goal
    text = board if word else f"{moves.refusal(tuple(_STEPS))}\n{board}"
    cut = not done and self.steps >= self.max_steps
    return Turn(text, float(done), done, cut, anchor=board, valid=word is not None)

  def close(self) -> None:
    pass

  def board(self) -> str:
    player, box = self.state
    marks = {place: "-" for place in self.floor} | {self.goal: "."}
    marks[player] = "+" if player == self.goal else "@"
    marks[box] = "*" if box == self.goal else "$"
    lines = [[marks.get((row, column), "#") for column in range(self.size)] for row in range(self.size)]
    return "\n".join(map("".join, lines))

  def best(self) -> list[str]:
    """Returns the moves on a shortest solution; all where there is none any more."""
    left = _distances(self.floor, self.goal)
    here = left.get(self.state)
    if here is None:
      return list(_STEPS)
    return [word for word in _STEPS if left.get(move(self.floor, self.state, word), here) < here]

  def demonstrate(self, rng: random.Random, wrong: float) -> str:
    """Returns a planner's move; in a share `wrong` of the calls, one drawn at random from all."""
    return moves.err(rng, wrong, self.best(), tuple(_STEPS))


def move(floor: frozenset[Place], state: State, word: str) -> State:
  """Returns the state after a move; the same where a wall is in the way."""
  (row, column), box = state
  r, c = _STEPS[word]
  player = (row + r, column + c)
  if player == box:
    box = (box[0] + r, box[1] + c)
  return (player, box) if player in floor and box in floor else state


def draw(number: int, size: int, walls: float, max_moves: int) -> tuple[frozenset[Place], Place, State]:
  """Returns the floor, the goal and the start of puzzle `number`: the first solvable one that it draws."""
  rng = random.Random(f"sokoban/{number}")
  places = [(row, column) for row in range(size) for column in range(size)]
  while True:
    floor = frozenset(place for place in places if rng.random() >= walls)
    if len(floor) < 3:
      continue
    goal, box, player = rng.sample(sorted(floor), 3)
    near = abs(goal[0] - box[0]) + abs(goal[1] - box[1]) < 2
    if not near and _distances(floor, goal).get((player, box), max_moves + 1) <= max_moves:
      return floor, goal, (player, box)


@functools.lru_cache(maxsize=16)
def _distances(floor: frozenset[Place], goal: Place) -> dict[State, int]:
  """Returns the number of moves to a solution from each state that has one; backwards from all solutions."""
  before: dict[State, list[State]] = {}
  for state in ((player, box) for player in floor for box in floor if player != box and box != goal):
    for word in _STEPS:
      before.setdefault(move(floor, state, word), []).append(state)
  left = {(player, goal): 0 for player in floor if player != goal}
  frontier = deque(left)
  while frontier:
    state = frontier.popleft()
    for earlier in before.get(state, ()):
      if earlier not in left:
        left[earlier] = left[state] + 1
        frontier.append(earlier)
  return left


make = Sokoban
