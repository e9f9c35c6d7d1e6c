"""Groups of sampled trajectories, as batches for the project's own objectives, and what is exact about them.

A credit that looks at one trajectory alone has an expectation that can be enumerated.  A few of them serve as
control variates: what they miss by on the sample says what every other credit misses by.
"""

import functools
from typing import NamedTuple

import jax
import numpy as np

from experiments.estimator_lab import measure, policy
from experiments.turns_lab import worlds
from experiments.turns_lab.size import STAGES, Size
from grpojax.objective import credit
from grpojax.types import Batch, Turns


class Source(NamedTuple):
  """Groups to draw: their policy and game, their size and number."""

  game: str
  policy: int
  G: int
  size: Size


class Draws(NamedTuple):
  """M groups of G trajectories that one policy has played."""

  game: str
  theta: np.ndarray  # [rows, V]
  rows: np.ndarray  # [M, G] int, numbers of trajectories
  batch: Batch  # [M, 1, G, ...]
  tokens: float  # sampled tokens of a group, expected


@functools.lru_cache(maxsize=24)
def draw(source: Source) -> Draws:
  """Draws the groups; all credits are measured on the same ones."""
  world = worlds.played(source.game).world
  share = float(np.linspace(*STAGES, source.size.policies)[source.policy])
  theta = worlds.trained(source.game, source.policy, share)
  on_policy = measure.on_policy(world, theta)
  rows = measure.sample_groups(on_policy, source.G, source.size.groups, source.policy).rows
  length = policy.probability(world, theta) @ world.mask.sum(1)
  return Draws(source.game, theta, rows, _batch(world, theta, rows), float(source.G * length))


def anchored(draws: Draws, anchor: str) -> Batch:
  """Returns the batch with anchors of another coarseness."""
  found = worlds.played(draws.game).anchors[anchor][draws.rows][:, None]
  return draws.batch._replace(turns=draws.batch.turns._replace(anchor=found))


def copied(draws: Draws, gamma: float, share: float, seed: int = 0) -> tuple[Batch, np.ndarray, np.ndarray]:
  """Returns batches whose rows are single turns, a share of them (≤ ½) twice; rows and tokens of the policy.

  So the public code fills its batches: returns are made first, then copies of rows drawn without replacement
  join the statistics and the gradient.
  """
  world = worlds.played(draws.game).world
  on = np.arange(worlds.U) < world.turns.count[draws.rows][..., None]  # [M, G, U]
  M, W = len(draws.rows), draws.rows.shape[1] * worlds.U
  rng, picks = np.random.default_rng(seed), np.full((M, W + W // 2), -1)
  for m in range(M):
    played = np.flatnonzero(on[m])
    again = rng.choice(played, round(share * len(played)), replace=False)
    picks[m, : len(played) + len(again)] = np.concatenate([played, again])
  return _of_single_turns(world, draws, picks, gamma)


@functools.lru_cache(maxsize=256)
def target(source: Source, kind: str, gamma: float, penalty: float) -> np.ndarray:
  """Returns the exact gradient [D] of the expected "return", "discounted" or "penalised" return."""
  world = worlds.played(source.game).world
  turns = world.turns
  reward = {
    "return": lambda: world.reward,
    "discounted": lambda: turns.reward @ gamma ** np.arange(worlds.U),
    "penalised": lambda: world.reward - penalty * turns.invalid.sum(1),
  }[kind]()
  return policy.true_gradient(world._replace(reward=reward), draw(source).theta).ravel()


@functools.lru_cache(maxsize=48)
def controls(source: Source, gamma: float) -> tuple[np.ndarray, np.ndarray]:
  """Returns known credits of every group [K, M, D] and their exact expectations [K, D]."""
  draws = draw(source)
  world = worlds.played(draws.game).world
  p = policy.probability(world, draws.theta)
  whole = np.where(world.mask > 0, (world.reward - p @ world.reward)[:, None], 0.0)
  returns, left = returns_and_rest(draws.game, draws.theta, gamma)
  factors = [whole, returns, left]
  if gamma != 1:
    factors.append(returns_and_rest(draws.game, draws.theta, 1.0)[1])
  where = world.state[draws.rows], world.token[draws.rows]
  found = [measure.by_logits(draws.theta, *where, f[draws.rows] / source.G) for f in factors]
  exact = [policy.score_sum(world, draws.theta, p[:, None] * f) for f in factors]
  return np.stack(found).reshape(len(factors), len(draws.rows), -1), np.stack(exact).reshape(len(factors), -1)


def returns_and_rest(game: str, theta: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
  """Returns each token's return, and the return less the exact value of state and turn, [N, T] both."""
  world, states, _ = worlds.played(game)
  p = policy.probability(world, theta)[:, None]
  returns = np.zeros((len(states), worlds.U))
  ahead = 0.0
  for u in reversed(range(worlds.U)):
    returns[:, u] = ahead = world.turns.reward[:, u] + gamma * ahead
  situation = np.where(states >= 0, states * worlds.U + np.arange(worlds.U) + 1, 0)  # 0: no turn
  weight = np.bincount(situation.ravel(), np.broadcast_to(p, situation.shape).ravel())
  value = np.bincount(situation.ravel(), (p * returns).ravel()) / np.maximum(weight, 1e-300)
  index = world.turns.index
  of_tokens = lambda x: np.where(index >= 0, np.take_along_axis(x, np.maximum(index, 0), 1), 0.0)
  return of_tokens(returns), of_tokens(returns - value[situation])


def _batch(world: policy.World, theta: np.ndarray, rows: np.ndarray) -> Batch:
  """Makes M batches of one prompt, [M, 1, G, ...]; π_old and the sampler are the policy."""
  take = lambda x: x[rows][:, None]
  logp = (policy.log_policy(theta)[world.state[rows], world.token[rows]] * world.mask[rows])[:, None]
  return Batch(
    mask=take(world.mask),
    reward=take(world.reward),
    accuracy=take(world.reward),
    valid=np.ones((len(rows), 1, rows.shape[1]), bool),
    ended=take(world.ended),
    sampler_logp=logp,
    old_logp=logp,
    turns=jax.tree.map(take, world.turns),
  )


def _of_single_turns(world: policy.World, draws: Draws, picks: np.ndarray, gamma: float):
  """Makes a row of each picked turn of a group [M, W], -1 for none; its reward is its discounted return."""
  row, turn = np.divmod(np.maximum(picks, 0), worlds.U)
  on = picks >= 0
  number = np.take_along_axis(draws.rows, row, 1)  # [M, W]
  with jax.enable_x64(True):
    played = np.arange(worlds.U) < world.turns.count[:, None]
    returns = np.asarray(credit.discounted(world.turns.reward, played, gamma))
  length = int((world.turns.index == 0).sum(1).max())
  place = turn[..., None] * length + np.arange(length)  # of its tokens in the trajectory
  token = lambda x: np.take_along_axis(x[number], place, 2)
  mask = token(world.mask) * on[..., None]
  of_turn = lambda x: np.where(on, x[number, turn], 0)[:, None, :, None]
  logp = (policy.log_policy(draws.theta)[token(world.state), token(world.token)] * mask)[:, None]
  batch = Batch(
    mask=mask[:, None],
    reward=world.reward[number][:, None],
    accuracy=world.reward[number][:, None],
    valid=on[:, None],
    ended=on[:, None],
    sampler_logp=logp,
    old_logp=logp,
    turns=Turns(
      index=np.where(mask > 0, 0, -1)[:, None],
      count=on.astype(int)[:, None],
      reward=of_turn(returns),
      anchor=of_turn(worlds.played(draws.game).anchors["state"]),
      invalid=of_turn(world.turns.invalid),
    ),
  )
  return batch, token(world.state), token(world.token)
