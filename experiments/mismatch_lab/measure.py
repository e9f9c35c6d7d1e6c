"""Bias and variance of an objective's gradient under a cause: sums over all pairs of answers, no samples.

ĝ is minus the gradient of the project's own loss by the decoder's parameters.  A learning rate is no error,
so ĝ is divided by its scale, E ĝ · g / |g|², g the gradient that is looked for; what is left of E ĝ beside g
is the bias.
"""

from typing import NamedTuple

import numpy as np

from experiments.estimator_lab import measure as lab
from experiments.estimator_lab import policy
from experiments.mismatch_lab import causes, corrections, decoders
from experiments.mismatch_lab.causes import Scene
from experiments.mismatch_lab.corrections import Correction, G
from experiments.mismatch_lab.decoders import WORLD
from experiments.mismatch_lab.size import Size

BUDGET = 128  # completions behind a gradient
CHUNK = 2048  # groups that go through a program at once
LEAST = 1e-3  # of a scale: below, what is left points nowhere


class Estimate(NamedTuple):
  """Numbers of one policy; bias and variance in |g| and |g|² at scale 1."""

  gap: float  # mean |log π − log μ| of a sampled token, nats
  k1: float  # KL(μ‖π) a sampled token, by its two estimators' expectations: of log μ − log π,
  k3: float  # and of ρ − 1 − log ρ
  ess: float  # effective sample size of completions by their Π ρ, share
  flips: float  # share of choices of experts
  scale: float
  bias: float  # nan where the scale is below LEAST
  variance: float  # of one completion: trace of ĝ's covariance, times G

  def mse(self, completions: int = BUDGET) -> float:
    """Returns the mean squared error of a gradient from so many completions."""
    return self.bias**2 + self.variance / completions


def estimates(correction: Correction, cause: str, size: Size) -> list[Estimate]:
  """Measures a correction on every policy, with its sampler."""
  return [estimate(correction, causes.scene(cause, number, size)) for number in range(size.policies)]


def estimate(correction: Correction, scene: Scene) -> Estimate:
  """Measures a correction on one policy."""
  learner = scene.learners[correction.learner]
  setting = lab.on_policy(WORLD, learner.table)._replace(sampler=scene.sampler)
  mean, square = _moments(correction, setting, learner.slope)
  size2 = scene.goal @ scene.goal
  scale = mean @ scene.goal / size2
  clear = abs(scale) > LEAST
  beside = mean / scale - scene.goal if clear else np.full_like(mean, np.nan)
  spread = square - mean @ mean
  return Estimate(
    **_distance(learner.table, scene.sampler),
    flips=scene.flips,
    scale=float(scale),
    bias=float(np.sqrt(beside @ beside / size2)),
    variance=float(G * spread / (scale**2 * size2)) if clear else float("nan"),
  )


def _moments(correction: Correction, setting: lab.Setting, slope: np.ndarray) -> tuple[np.ndarray, float]:
  """Returns E ĝ [D] and E |ĝ|² over all groups."""
  cells = decoders.S * decoders.V
  slope = slope.reshape(cells, -1)
  gram, objective = slope @ slope.T, corrections.build(correction)
  groups = lab.enumerate_groups(setting, G)
  mean, square = np.zeros(cells), 0.0
  for start in range(0, len(groups.rows), CHUNK):
    rows, weight = (x[start : start + CHUNK] for x in (groups.rows, groups.weight))
    by_cell = -_by_cell(objective, setting, rows)
    mean += weight @ by_cell
    square += weight @ ((by_cell @ gram) * by_cell).sum(1)
  return mean @ slope, float(square)


def _by_cell(objective, setting: lab.Setting, rows: np.ndarray) -> np.ndarray:
  """Returns ∂loss / ∂log π(token | prefix) of every group, [M, S * V]."""
  padded = np.concatenate([rows, np.zeros((CHUNK - len(rows), G), int)])  # one shape, one program
  logp = policy.logp(WORLD, setting.theta)[padded]
  slope = lab.slopes(objective, lab.batch(setting, padded), logp)[0][: len(rows)]
  cells = decoders.S * decoders.V
  cell = np.arange(len(rows))[:, None, None] * cells
  cell = cell + WORLD.state[rows] * decoders.V + WORLD.token[rows]
  return np.bincount(cell.ravel(), (slope * WORLD.mask[rows]).ravel(), len(rows) * cells).reshape(-1, cells)


def _distance(table: np.ndarray, sampler: np.ndarray) -> dict[str, float]:
  """Returns how far the learner's table is from the sampler's, on what the sampler writes."""
  mu = policy.probability(WORLD, sampler)
  on = (WORLD.mask > 0) & (mu > 0)[:, None]
  delta = np.where(on, policy.logp(WORLD, table) - policy.logp(WORLD, sampler), 0.0)
  tokens = mu @ WORLD.mask.sum(1)
  weight = np.where(mu > 0, np.exp(delta.sum(1)), 0.0)
  each = lambda x: float(mu @ np.where(on, x, 0.0).sum(1) / tokens)
  return dict(
    gap=each(np.abs(delta)),
    k1=each(-delta),
    k3=each(np.expm1(delta) - delta),
    ess=float((mu @ weight) ** 2 / (mu @ weight**2)),
  )
