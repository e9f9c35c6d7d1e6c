"""Three games so small that every trajectory can be listed: a grid, key and door, repair of a form.

A game is tables over S states and A actions.  Its states come back: a step is undone, a wall stops, a field
is overwritten.  An action is one token, or in the form two: which field, and which value.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np

from grpojax.rollout import anchors


class Move(NamedTuple):
  """Result of an action: the next state, and the validator's answer."""

  state: Hashable
  answer: str
  reward: float = 0.0
  done: bool = False
  invalid: bool = False  # against the rules: nothing changes
  error: bool = False  # the answer says what is wrong, so that ESSA takes its fingerprint


class Game(NamedTuple):
  """State 0 is the first; what follows the end of an episode is never read."""

  name: str
  turns: int  # at most
  tokens: int  # of an action
  vocabulary: int
  best: float  # largest return
  next: np.ndarray  # [S, A] int
  reward: np.ndarray  # [S, A]
  done: np.ndarray  # [S, A] bool
  invalid: np.ndarray  # [S, A] bool
  seen: np.ndarray  # [S] int: states that look alike without memory have the same number
  answer: np.ndarray  # [S, A] int, number of the verb and the validator's answer
  fingerprint: np.ndarray  # [S, A] int, number of its fingerprint, by ESSA's rules


def grid() -> Game:
  """3 x 3 cells, a hole in the middle; from one corner to the other in 4 of 7 moves."""
  steps = dict(up=(-1, 0), down=(1, 0), left=(0, -1), right=(0, 1))

  def move(state, verb):
    row, column = (x + dx for x, dx in zip(state, steps[verb], strict=True))
    if not (0 <= row < 3 and 0 <= column < 3):
      return Move(state, "there is a wall", invalid=True, error=True)
    won, lost = (row, column) == (2, 2), (row, column) == (1, 1)
    return Move((row, column), f"row {row}, column {column}", float(won), won or lost)

  return _tables("grid", 7, 1, tuple(steps), (0, 0), move, lambda state: state, best=1.0)


def key_and_door() -> Game:
  """Three cells: a key at the left end, a door at the right, the start between; 5 of 7 actions open it.

  The key gives .25, the door 1.  Whether the key is held cannot be seen, only remembered.
  """

  def move(state, verb):
    cell, key = state
    if verb == "use":
      if cell == 0 and not key:
        return Move((cell, True), "you have the key", 0.25)
      if cell == 2 and key:
        return Move(state, "the door is open", 1.0, done=True)
      return Move(state, f"nothing can be used in cell {cell}", invalid=True, error=True)
    to = cell + (1 if verb == "right" else -1)
    if not 0 <= to <= 2:
      return Move(state, "there is a wall", invalid=True, error=True)
    return Move((to, key), f"cell {to}")

  verbs = ("left", "right", "use")
  return _tables("key and door", 7, 1, verbs, (1, False), move, lambda state: state[0], best=1.25)


def repair() -> Game:
  """Fields a and b, values 0 to 2, right are a = 2 and b = 1; 5 turns of two tokens, field and value.

  The validator names the first wrong field only.  Field c does not exist, and a value cannot be set twice.
  """
  right = dict(a=2, b=1)

  def move(state, action):
    field, value = action
    if field == "c":
      return Move(state, "unknown field 'c'", invalid=True, error=True)
    values = dict(zip("ab", state, strict=True))
    if values[field] == value:
      return Move(state, f"field '{field}' already is {value}", invalid=True, error=True)
    values[field] = value
    after = tuple(values.values())
    wrong = next((f for f in "ab" if values[f] != right[f]), None)
    if wrong is None:
      return Move(after, "accepted", 1.0, done=True)
    kind = f"cannot be {values[wrong]}" if values[wrong] else "is missing"
    return Move(after, f"field '{wrong}' {kind}", error=True)

  actions = tuple((field, value) for field in "abc" for value in range(3))
  # Without memory one sees the first field that is wrong, and its value: what the validator last said.
  seen = lambda state: ("a", state[0]) if state[0] != right["a"] else ("b", state[1])
  return _tables("repair", 5, 2, actions, (0, 0), move, seen, best=1.0)


def _tables(name, turns, tokens, actions, start, move: Callable, seen: Callable, best) -> Game:
  """Makes the tables of all states that can be reached."""
  states, moves = [start], []
  for state in states:
    moves.append([move(state, action) for action in actions])
    states += [m.state for m in dict.fromkeys(moves[-1]) if not m.done and m.state not in states]
  table = lambda get, kind: np.array([[get(m) for m in row] for row in moves], kind)
  verbs = ["set" if tokens == 2 else action for action in actions]
  answers = [(verb, m) for row in moves for verb, m in zip(verbs, row, strict=True)]
  prints = [anchors.error_anchor(verb, m.answer) if m.error else ("ok", verb) for verb, m in answers]
  shape = (len(states), len(actions))
  return Game(
    name=name,
    turns=turns,
    tokens=tokens,
    vocabulary=round(len(actions) ** (1 / tokens)),
    best=best,
    next=table(lambda m: 0 if m.done else states.index(m.state), int),
    reward=table(lambda m: m.reward, float),
    done=table(lambda m: m.done, bool),
    invalid=table(lambda m: m.invalid, bool),
    seen=anchors.ids([seen(state) for state in states]),
    answer=anchors.ids([(verb, m.answer) for verb, m in answers]).reshape(shape),
    fingerprint=anchors.ids(prints).reshape(shape),
  )


GAMES = {game.name: game for game in (grid(), key_and_door(), repair())}
