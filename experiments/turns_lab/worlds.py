"""Game -> every trajectory there is, as a `policy.World` whose rows have turns; and policies that play it.

The policy is a table: logits [rows, V], a row per state, and in a game of two tokens one more per state and
first token.  N trajectories, T tokens and U turns at most; all games are padded to one T and U, so that a
credit is compiled once.
"""

import functools
from typing import NamedTuple

import numpy as np

from experiments.estimator_lab import policy
from experiments.turns_lab.games import GAMES, Game
from grpojax.types import Turns

T, U = 10, 7
STEP = 0.25  # length of a step up the exact gradient, in logits


class Played(NamedTuple):
  """All trajectories of a game."""

  world: policy.World
  states: np.ndarray  # [N, U] int, the state before each turn; -1 behind the last
  anchors: dict[str, np.ndarray]  # of points.LEVELS -> [N, U] int32


@functools.cache
def played(name: str) -> Played:
  """Returns the trajectories of a game of GAMES."""
  return play(GAMES[name])


def play(game: Game) -> Played:
  """Lists all trajectories of a game."""
  states, actions = _sequences(game)
  on = states >= 0
  s, a = np.where(on, states, 0), np.where(on, actions, 0)
  of_turns = lambda table: np.where(on, table[s, a], 0)
  rows, tokens = _tokens(game, s, a)
  mask = np.repeat(on, game.tokens, axis=1)
  index = np.where(mask, np.repeat(np.arange(game.turns), game.tokens)[None], -1)
  kinds = _anchors(game, states, actions, s, a)
  turns = Turns(
    index=_padded(index, T, -1),
    count=on.sum(1),
    reward=_padded(of_turns(game.reward), U),
    anchor=kinds["state"],
    invalid=_padded(of_turns(game.invalid), U, False),
  )
  last = on.sum(1) - 1
  number = np.arange(len(s))
  world = policy.World(
    state=_padded(np.where(mask, rows, 0), T),
    token=_padded(np.where(mask, tokens, 0), T),
    mask=_padded(mask.astype(float), T),
    ended=game.done[s[number, last], a[number, last]],
    reward=turns.reward.sum(1),
    shape=shape_of(game),
    turns=turns,
  )
  return Played(world, _padded(states, U, -1), kinds)


def shape_of(game: Game) -> tuple[int, int]:
  """Returns (rows, V) of a policy's logits."""
  S, V = len(game.next), game.vocabulary
  return (S if game.tokens == 1 else S + S * V), V


@functools.cache
def trained(name: str, seed: int, share: float) -> np.ndarray:
  """Climbs the exact gradient from random logits until J is `share` of the best return."""
  world = played(name).world
  theta = policy.random_policy(world, seed, 0.5)
  while policy.expected_reward(world, theta) < share * GAMES[name].best:
    gradient = policy.true_gradient(world, theta)
    theta = theta + STEP * gradient / np.linalg.norm(gradient)
  return theta


def _sequences(game: Game) -> tuple[np.ndarray, np.ndarray]:
  """Returns states and actions [N, turns] of all trajectories, -1 behind the last turn."""
  A = game.next.shape[1]
  states, actions = (np.full((1, game.turns), -1) for _ in range(2))
  now, over = np.zeros(1, int), []
  for turn in range(game.turns):
    states, actions = (np.repeat(x, A, axis=0) for x in (states, actions))
    states[:, turn] = np.repeat(now, A)
    actions[:, turn] = np.tile(np.arange(A), len(now))
    here = states[:, turn], actions[:, turn]
    done = game.done[here]
    over.append((states[done], actions[done]))
    states, actions, now = states[~done], actions[~done], game.next[here][~done]
  return tuple(np.concatenate(x) for x in zip(*over, (states, actions), strict=True))


def _tokens(game: Game, s: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns the policy's row and the token of each token, [N, turns · tokens] both."""
  if game.tokens == 1:
    return s, a
  S, V = len(game.next), game.vocabulary
  first, second = a // V, a % V
  rows = np.stack([s, S + s * V + first], -1).reshape(len(s), -1)
  return rows, np.stack([first, second], -1).reshape(len(s), -1)


def _anchors(game: Game, states, actions, s, a) -> dict[str, np.ndarray]:
  """Returns which turns face the same situation, from the whole history to no difference at all."""
  turn = np.arange(game.turns)
  history = np.zeros_like(s)
  for u in turn[1:]:
    seen = np.stack([history[:, u - 1], states[:, u - 1], actions[:, u - 1]], 1)
    history[:, u] = np.unique(seen, axis=0, return_inverse=True)[1].ravel() + 1
  after = lambda table: np.concatenate([np.zeros((len(s), 1), int), 1 + table[s, a][:, :-1]], 1)
  kinds = {
    "history": history * game.turns + turn,
    "state and turn": s * game.turns + turn,
    "state": s,
    "observation": game.seen[s],
    "answer": after(game.answer),
    "fingerprint": after(game.fingerprint),
    "none": np.zeros_like(s),
  }
  return {kind: _padded(x, U).astype(np.int32) for kind, x in kinds.items()}


def _padded(x: np.ndarray, width: int, fill=0) -> np.ndarray:
  return np.pad(x, ((0, 0), (0, width - x.shape[1])), constant_values=fill)
