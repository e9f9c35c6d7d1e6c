"""pass@k, maj@k and best of k over all subsets, and the stored cases."""

import itertools
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from objective_cases_2026 import OTHERS

from grpojax.rollout import estimators, subsets

MAJORITIES = [
  "maj_tie_of_two", "maj_k1_is_mean", "maj_silent_rows", "maj_three_way", "maj_no_votes",
  "maj_two_right_answers", "maj_random",
]  # fmt: skip


@pytest.mark.parametrize("name", MAJORITIES)
def test_a_stored_case_of_maj_at_k(name):
  inputs, expected = OTHERS[name]["extra"]["inputs"], OTHERS[name]["extra"]["expected"]
  got = subsets.majority_of(inputs["answers"], inputs["right"])
  assert got.dtype == np.float64 and len(got) == len(inputs["answers"])
  np.testing.assert_allclose(got[inputs["k"] - 1], expected["value"], rtol=1e-10, atol=1e-10)


def test_all_stored_cases_of_curves_are_tested():
  stored = {name for name in OTHERS if OTHERS[name]["variant"] == "maj_at_k"}
  assert stored == set(MAJORITIES)


def questions(count, seed=0):
  """(answers, right), a few of them silent; equal answers have one verdict."""
  rng = np.random.default_rng(seed)
  for _ in range(count):
    n = int(rng.integers(1, 9))
    verdict = dict(zip("abcd", rng.integers(2, size=4), strict=True))
    answers = [None if x == "-" else str(x) for x in rng.choice(list("abcd-"), size=n)]
    yield answers, np.array([verdict.get(a, 0) for a in answers], float)


def test_maj_at_k_is_the_mean_of_the_majority_over_all_subsets():
  for answers, right in questions(30):
    n, got = len(answers), subsets.majority_of(answers, right)
    for k in range(1, n + 1):
      drawn = itertools.combinations(range(n), k)
      each = [estimators.majority([answers[i] for i in of], right[list(of)]) for of in drawn]
      np.testing.assert_allclose(got[k - 1], np.mean(each), atol=1e-12)


def test_best_of_k_is_the_mean_over_all_subsets():
  rng = np.random.default_rng(1)
  for _ in range(20):
    n = int(rng.integers(1, 9))
    score, value = rng.integers(4, size=n), rng.normal(size=n)  # with ties
    got = subsets.best_of(score, value)
    for k in range(1, n + 1):
      each = []
      for of in map(list, itertools.combinations(range(n), k)):
        each.append(value[of][score[of] == score[of].max()].mean())
      np.testing.assert_allclose(got[k - 1], np.mean(each), atol=1e-12)


def test_the_best_of_k_by_the_verdict_is_pass_at_k():
  right = np.array([1, 0, 0, 1, 0, 0, 0.0])
  expected = [estimators.pass_at_k([2], 7, k)[0] for k in range(1, 8)]
  np.testing.assert_allclose(subsets.best_of(right, right), expected, atol=1e-12)


def test_all_samples_are_drawn_in_one_way_and_one_is_the_mean():
  for answers, right in questions(20, seed=2):
    got = subsets.majority_of(answers, right)
    assert got[-1] == pytest.approx(estimators.majority(answers, right))
    assert got[0] == pytest.approx(np.where([a is None for a in answers], 0, right).mean())


def test_as_many_samples_as_are_allowed_stay_finite_and_exact():
  """Of two answers among silent samples, against a sum over their votes in whole numbers."""
  n, a, b = subsets.MOST, 9, 12
  got = subsets.majority_of(["a"] * a + ["b"] * b + [None] * (n - a - b), [1] * a + [0] * (n - a))
  for k in (1, 500, 900, n):
    ways = {
      (i, j): comb(a, i) * comb(b, j) * comb(n - a - b, k - i - j)
      for i, j in itertools.product(range(a + 1), range(b + 1))
      if i + j <= k
    }
    won = sum(w * (Fraction(i > j) + Fraction(i == j > 0, 2)) for (i, j), w in ways.items())
    assert got[k - 1] == pytest.approx(float(won / comb(n, k)), rel=1e-10)
