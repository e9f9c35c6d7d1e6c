"""Means over seeds and their 95 % bootstrap intervals, of single rows and of paired differences."""

import functools
from typing import NamedTuple

import numpy as np
from scipy import special

from grpojax.rollout import estimators

RESAMPLES = 20_000


class Estimate(NamedTuple):
  mean: float
  low: float
  high: float

  @property
  def apart(self) -> bool:
    """Returns True if the interval excludes zero."""
    return self.low > 0 or self.high < 0


def estimate(values) -> Estimate:
  """Returns mean and interval of values [S] of S seeds; the interval of one seed is unknown (NaN)."""
  mean, low, high = estimates(np.asarray(values, float)[:, None])
  return Estimate(float(mean[0]), float(low[0]), float(high[0]))


def difference(after, before) -> Estimate:
  """Estimates after - before, paired by seed: both [S] in the same order of seeds."""
  return estimate(np.asarray(after, float) - np.asarray(before, float))


def detectable(scatter: float, seeds: int, power: float = 0.8) -> float:
  """Returns the least true difference whose 95 % interval excludes zero with this `power`; NaN of one seed.

  `scatter` is the standard deviation over seeds of the paired difference, in whose unit the result is.
  Source: Bloom 1995, https://doi.org/10.1177/0193841X9501900504, with Student's distribution.
  """
  if seeds == 1:
    return float("nan")
  t = special.stdtrit(seeds - 1, [0.975, power]).sum()
  return float(t * scatter / np.sqrt(seeds))


def half_width(spread: float, seeds: int) -> float:
  """Returns the half width of a mean's 95 % interval, by Student; NaN of one seed.

  `spread` is the standard deviation over seeds, in whose unit the result is.
  """
  if seeds == 1:
    return float("nan")
  return float(special.stdtrit(seeds - 1, 0.975) * spread / np.sqrt(seeds))


def seeds_for(spread: float, width: float) -> int:
  """Returns the fewest seeds whose interval has at most this half width, at least 2."""
  seeds = 2
  while half_width(spread, seeds) > width:
    seeds += 1
  return seeds


def estimates(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns mean, low, high, [N] each, of values [S, N]: the expanded percentile interval over S seeds.

  With few seeds the plain percentile interval is too narrow, for S = 5 by a third: resampling divides by
  S where the variance has S - 1, and knows nothing of Student's tails.  So quantiles further out are taken,
  those at which the interval of a normal sample has Student's width.
  Source: Hesterberg 2015, https://doi.org/10.1080/00031305.2015.1089789, section 3.2 and appendix.
  """
  S, mean = len(values), values.mean(0)
  if S == 1:
    return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
  means = _resampled(S) @ values / S
  tail = special.ndtr(np.sqrt(S / (S - 1)) * special.stdtrit(S - 1, 0.025))
  low, high = np.quantile(means, [tail, 1 - tail], axis=0)
  return mean, low, high


@functools.cache
def _resampled(S: int) -> np.ndarray:
  """Returns how often each of S seeds is in each resample, [RESAMPLES, S]; always the same draws."""
  return estimators.counts(np.random.default_rng(0), S, RESAMPLES).astype(float)
