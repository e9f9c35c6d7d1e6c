"""Intervals by seed: whole seeds are resampled with replacement, and everything is computed anew of each."""

import itertools

import numpy as np

ALL_UP_TO = 4  # seeds: of so many every resample is taken
RESAMPLES = 500  # of more seeds


def resamples(S: int) -> np.ndarray:
  """Returns the seeds of each resample, [N, S]: all S^S in order, or of many seeds some of them."""
  if S <= ALL_UP_TO:
    return np.array(list(itertools.product(range(S), repeat=S)))
  return np.random.default_rng(0).integers(S, size=(RESAMPLES, S))


def each(S: int, compute) -> list:
  """Returns `compute(seeds)` of every resample; those with the same seeds are computed once."""
  distinct, which = np.unique(np.sort(resamples(S), axis=1), axis=0, return_inverse=True)
  found = [compute(seeds) for seeds in distinct]
  return [found[i] for i in which.ravel()]


def interval(values) -> tuple[np.ndarray, np.ndarray]:
  """Returns the ends of the 95 % percentile interval of values [N, ...] of N resamples, linear quantiles.

  Source: Efron 1979, https://doi.org/10.1214/aos/1176344552; percentiles as in Efron 1981.
  """
  low, high = np.quantile(np.asarray(values, float), [0.025, 0.975], axis=0)
  return low, high
