"""The laboratory of mismatch: what its verdicts say of numbers."""

import pytest

from experiments.mismatch_lab import compare
from experiments.mismatch_lab.measure import Estimate


def estimate(**changes) -> Estimate:
  return Estimate(0.1, 0.01, 0.01, 0.9, 0.0, 1.0, 0.1, 50.0)._replace(**changes)


@pytest.mark.parametrize(
  ("biases", "word"),
  [
    ((0.001, 0.0011, 0.0009), "restores"),
    ((0.05, 0.051, 0.052), "reduces"),
    ((0.2, 0.21, 0.19), "adds"),
    ((0.01, 0.5, 0.1), "cannot be told"),
    ((0.1, 0.1, 0.1), "never acts"),
    ((0.1, float("nan"), 0.1), "no signal"),
  ],
)
def test_verdicts(biases, word):
  found = [estimate(bias=bias) for bias in biases]
  assert compare.verdict(found, [estimate()] * 3) == word
  assert word in compare.VERDICTS


def test_where_nothing_is_wrong_nothing_is_restored():
  fine = [estimate(bias=2e-6, variance=v) for v in (50.0, 50.1, 50.2)]
  assert compare.verdict(fine, [estimate(bias=1e-6)] * 3) == "no bias"
  assert compare.verdict([estimate(bias=0.1)] * 3, fine) == "adds"
