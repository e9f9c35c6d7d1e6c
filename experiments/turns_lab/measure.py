"""Bias and variance of a credit's gradient estimate, each with its standard error.

ĝ is what a group gives: minus the gradient of the project's own loss.  A learning rate is no error, so ĝ is
first divided by its scale, E ĝ · g / |g|², g the exact gradient; what is left of E ĝ beside g is the bias.
"""

from typing import NamedTuple

import jax
import numpy as np

from experiments.estimator_lab import measure as lab
from experiments.estimator_lab import variants
from experiments.turns_lab import draws as draws_lib
from experiments.turns_lab import worlds
from experiments.turns_lab.draws import Draws, Source
from experiments.turns_lab.points import CRITIC, Point
from experiments.turns_lab.size import Size
from grpojax.types import Array, Batch

CHUNK = 100  # groups that go through a program at once
BUDGET = 16  # groups behind a gradient: the 16 prompts of the papers


class Estimate(NamedTuple):
  """Numbers of one policy, in units of |g| and |g|²; `_error` is one standard error."""

  scale: float
  scale_error: float
  bias2: float  # |E ĝ / scale − g|² / |g|², an unbiased estimate: below 0 by chance where there is none
  bias2_error: float
  bias2_null: float  # its standard error if there were no bias
  variance: float  # of one sampled token: trace of ĝ's covariance, times the tokens of a group
  variance_error: float
  tokens: float  # sampled tokens of a group, expected

  def mse(self, groups: int = BUDGET) -> float:
    """Returns the mean squared error of a gradient from so many groups."""
    return max(self.bias2, 0.0) + self.variance / (groups * self.tokens)


def estimates(point: Point, game: str, size: Size) -> list[Estimate]:
  """Measures a credit on every policy of a game."""
  return [_estimate(point, Source(game, number, point.G, size)) for number in range(size.policies)]


def _estimate(point: Point, source: Source) -> Estimate:
  gamma, penalty = point.advantage.get("gamma", 1.0), point.advantage.get("penalty", 0.0)
  draws = draws_lib.draw(source)
  goal, known = draws_lib.target(source, point.target, gamma, penalty), draws_lib.controls(source, gamma)
  if point.advantage["fn"] == CRITIC:
    return statistics(known[0][2], *known, goal, draws.tokens)
  return statistics(gradients(point, draws), *known, goal, draws.tokens)


def gradients(point: Point, draws: Draws) -> np.ndarray:
  """Returns ĝ of every group, [M, D]."""
  rows = draws.rows
  if point.copies is None:
    world = worlds.played(draws.game).world
    batch, where = draws_lib.anchored(draws, point.anchor), (world.state[rows], world.token[rows])
  else:
    batch, *where = draws_lib.copied(draws, point.advantage["gamma"], point.copies)
  share = dict(fn=f"{__name__}:per_trajectory", trajectories=rows.shape[1])
  objective = variants.build("rloo", advantage=point.advantage, aggregate=share)
  slope = np.concatenate([lab.slopes(objective, part, part.old_logp[:, 0])[0] for part in _chunks(batch)])
  return -lab.by_logits(draws.theta, *where, slope).reshape(len(rows), -1)


def per_trajectory(batch: Batch, *, trajectories) -> Array:
  """Weighs tokens by 1 / trajectories, so that ĝ sums over turns, whether rows are trajectories or turns."""
  return batch.mask / trajectories


def statistics(found, known, exact, goal, tokens: float) -> Estimate:
  """Computes an Estimate from ĝ [M, D], controls [K, M, D], their expectations [K, D], and g [D]."""
  M, size2 = len(found), goal @ goal
  mean, rest = _with_controls(found, known, exact)
  cov = rest.T @ rest / (M - 1) / M  # of the mean
  scale, scale_error = mean @ goal / size2, np.sqrt(goal @ cov @ goal) / size2
  across = np.eye(len(goal)) - np.outer(goal, goal) / size2  # the part of a vector beside g
  beside, cov = across @ mean, across @ cov @ across
  unit, null = scale**2 * size2, 2 * (cov**2).sum()
  spread = ((found - found.mean(0)) ** 2).sum(1) * M / (M - 1)
  variance = spread.mean() * tokens / unit
  relative = np.hypot(spread.std() / np.sqrt(M) / spread.mean(), 2 * scale_error / scale)
  return Estimate(
    scale=float(scale),
    scale_error=float(scale_error),
    bias2=float((beside @ beside - np.trace(cov)) / unit),
    bias2_error=float(np.sqrt(null + 4 * max(beside @ cov @ beside, 0.0)) / unit),
    bias2_null=float(np.sqrt(null) / unit),
    variance=float(variance),
    variance_error=float(variance * relative),
    tokens=tokens,
  )


def _with_controls(found, known, exact) -> tuple[np.ndarray, np.ndarray]:
  """Returns the mean [D] that regression on the controls corrects, and its residuals [M, D].

  A control has one factor for all of the gradient: a factor for each component would fit the few groups
  that reach a rare state without a rest, and call their mean exact.
  """
  K, M, _ = known.shape
  z = (known - known.mean(1, keepdims=True)).reshape(K, -1)
  x = found - found.mean(0)
  factor = np.linalg.lstsq(z @ z.T, z @ x.ravel(), rcond=None)[0]  # [K]
  missed = factor @ (known.mean(1) - exact)
  return found.mean(0) - missed, x - (factor @ z).reshape(M, -1)


def _chunks(batch: Batch):
  """Cuts a batch of M groups into pieces of CHUNK."""
  for start in range(0, len(batch.mask), CHUNK):
    yield jax.tree.map(lambda x, start=start: x[start : start + CHUNK], batch)
