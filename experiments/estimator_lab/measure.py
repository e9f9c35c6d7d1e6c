"""Quality of an objective's gradient: its expectation, its variance, and the signal lost to clipping.

The gradient is that of the project's own `prepare` and `loss`, on a batch of one prompt; only its
expectation is taken here, over every group there is or over a seeded sample of them.
"""

import itertools
import math
from typing import NamedTuple

import jax
import numpy as np

from experiments.estimator_lab import policy
from grpojax import objective as lib
from grpojax.types import Batch

BLOCKS = 20  # of the delete-a-block jackknife behind every error bar


class Setting(NamedTuple):
  """Logits [S, V] of each policy."""

  world: policy.World
  theta: np.ndarray  # π_θ, whose gradient is asked for
  old: np.ndarray  # π_old, the learner at rollout
  sampler: np.ndarray  # μ
  ref: np.ndarray


class Groups(NamedTuple):
  """Groups of responses, and how likely each is."""

  rows: np.ndarray  # [M, G] int, numbers of responses
  weight: np.ndarray  # [M], sums to 1
  exact: bool  # every group there is


class Measurement(NamedTuple):
  """Statistics of minus the loss's gradient.  `error`: one standard error of each number, 0 where exact."""

  gradient: np.ndarray  # [S, V], its expectation
  cosine: float  # with the true gradient
  norm: float  # of the expectation, over that of the true gradient
  bias: float  # |expectation − true gradient| / |true gradient|
  noise: float  # trace of the covariance / |expectation|²: free of scale
  variance: float  # trace of the covariance / |true gradient|²
  lost: float  # share of Σ weight |A| on tokens that have no gradient
  clipped: float  # share of the tokens with A ≠ 0 that have no gradient
  error: dict


def on_policy(world: policy.World, theta: np.ndarray) -> Setting:
  """Returns the setting in which all policies are π_θ."""
  return Setting(world, theta, theta, theta, theta)


def enumerate_groups(setting: Setting, G: int) -> Groups:
  """Returns every multiset of G responses with its multinomial probability under μ."""
  N = len(setting.world.reward)
  rows = np.array(list(itertools.combinations_with_replacement(range(N), G)))
  counts = (rows[:, :, None] == np.arange(N)).sum(1)
  ways = np.array([math.factorial(k) for k in range(G + 1)], float)[counts].prod(1)
  log_mu = policy.logp(setting.world, setting.sampler).sum(-1)
  weight = math.factorial(G) / ways * np.exp(log_mu[rows].sum(1))
  return Groups(rows, weight, True)


def sample_groups(setting: Setting, G: int, M: int, seed: int) -> Groups:
  """Draws M groups of G responses from μ."""
  mu = policy.probability(setting.world, setting.sampler)
  rows = np.random.default_rng(seed).choice(len(mu), (M, G), p=mu / mu.sum())
  return Groups(rows, np.full(M, 1 / M), False)


def measure(objective: lib.Objective, setting: Setting, groups: Groups) -> Measurement:
  """Returns expectation and spread of the objective's gradient over the groups."""
  gradient, lost, clipped = estimates(objective, setting, groups.rows)
  flat, w = gradient.reshape(len(gradient), -1), groups.weight[:, None]
  square = (flat**2).sum(1, keepdims=True)
  sums = np.concatenate([w, w * flat, w * square, w * lost, w * clipped], 1)
  truth = policy.true_gradient(setting.world, setting.theta).ravel()
  total = _statistics(sums.sum(0), truth)
  error = dict.fromkeys(total, 0.0) if groups.exact else _jackknife(sums, truth)
  mean = (sums[:, 1:-5].sum(0) / sums[:, 0].sum()).reshape(setting.world.shape)
  return Measurement(mean, error=error, **total)


def estimates(objective: lib.Objective, setting: Setting, rows: np.ndarray):
  """Returns −∇ loss of every group [M, S, V], and [M, 2] (part, whole) of lost signal and clipped tokens."""
  world = setting.world
  logp = policy.logp(world, setting.theta)[rows]
  slope, weight, advantage, mask = slopes(objective, batch(setting, rows), logp)
  gradient = by_logits(setting.theta, world.state[rows], world.token[rows], slope)
  active = (mask > 0) & (advantage != 0)
  dead, signal = active & (slope == 0), weight * np.abs(advantage)
  both = lambda x: np.stack([(x * dead).sum((1, 2)), (x * active).sum((1, 2))], 1)
  return -gradient, both(signal), both(np.ones_like(signal))


def by_logits(theta: np.ndarray, state: np.ndarray, token: np.ndarray, slope: np.ndarray) -> np.ndarray:
  """Returns Σ slope ∇ log π(token | state) of every group: [M, G, T] three times -> [M, S, V]."""
  M, cells = len(slope), theta.size
  cell = np.arange(M)[:, None, None] * cells + state * theta.shape[1] + token
  summed = np.bincount(cell.ravel(), slope.ravel(), M * cells)
  return policy.to_logits(theta, summed.reshape(M, *theta.shape))


def slopes(objective: lib.Objective, batch: Batch, logp: np.ndarray) -> list[np.ndarray]:
  """Returns ∂loss/∂log π, weight, advantage, mask of M batches of one prompt, float64, [M, G, T] each."""
  with jax.enable_x64(True):
    return [np.asarray(x, float) for x in _slopes(objective, batch, logp[:, None])]


@jax.jit
def _slopes(objective, batch: Batch, logp):
  def one(batch, logp):
    prepared = lib.prepare(objective, batch, logp)
    slope = jax.grad(lambda x: lib.loss(objective, x, prepared)[0])(logp)
    return slope[0], prepared.weight[0], prepared.advantage[0], prepared.mask[0]

  return jax.vmap(one)(batch, logp)


def batch(setting: Setting, rows: np.ndarray) -> Batch:
  """Makes M batches of one prompt, [M, 1, G, ...], with every field that a single turn has."""
  world = setting.world
  old = policy.log_policy(setting.old)
  entropy = -(np.exp(old) * old).sum(-1)[world.state]
  reward = world.reward[rows][:, None]
  baseline = policy.expected_reward(world, setting.sampler)
  variance = policy.probability(world, setting.sampler) @ (world.reward - baseline) ** 2
  extra = dict(  # perfect trackers; one reward
    baseline=np.full(reward.shape, baseline),
    moment=np.full(reward.shape, variance),
    part=reward[..., None],
    part_valid=np.ones((*reward.shape, 1)),
    part_weight=np.ones((*reward.shape, 1)),
  )
  tokens = lambda x: x[rows][:, None]
  return Batch(
    mask=tokens(world.mask),
    reward=reward,
    accuracy=reward,
    valid=np.ones(reward.shape, bool),
    ended=tokens(world.ended),
    sampler_logp=tokens(policy.logp(world, setting.sampler)),
    old_logp=tokens(policy.logp(world, setting.old)),
    ref_logp=tokens(policy.logp(world, setting.ref)),
    entropy=tokens(entropy),
    extra=extra,
  )


def _statistics(sums: np.ndarray, truth: np.ndarray) -> dict[str, float]:
  """Returns the numbers of a Measurement from sums over groups."""
  sums, (lost, signal, clipped, active) = sums[:-4] / sums[0], sums[-4:]
  mean, square = sums[1:-1], sums[-1]
  size, scale = np.linalg.norm(mean), np.linalg.norm(truth)
  spread = max(square - size**2, 0.0)
  return dict(
    cosine=float(mean @ truth / max(size * scale, 1e-300)),
    norm=float(size / scale) if scale else math.nan,
    bias=float(np.linalg.norm(mean - truth) / scale) if scale else math.nan,
    noise=float(spread / size**2) if size else math.inf,  # no signal is no virtue
    variance=float(spread / scale**2) if scale else math.nan,
    lost=float(lost / max(signal, 1e-300)),
    clipped=float(clipped / max(active, 1e-300)),
  )


def _jackknife(sums: np.ndarray, truth: np.ndarray) -> dict[str, float]:
  """Returns standard errors from BLOCKS leave-one-block-out values."""
  total = sums.sum(0)
  left = [_statistics(total - part.sum(0), truth) for part in np.array_split(sums, BLOCKS)]
  spread = lambda key: np.std([x[key] for x in left], ddof=0) * math.sqrt(BLOCKS - 1)
  with np.errstate(invalid="ignore"):  # a block without signal has infinite noise: error NaN
    return {key: float(spread(key)) for key in left[0]}
