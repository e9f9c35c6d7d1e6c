"""Estimators against enumeration and cases worked by hand."""

import itertools

import numpy as np
import pytest
from objective_cases_2026 import OTHERS

from grpojax.rollout import estimators as evaluate


@pytest.mark.parametrize("right", [[1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_pass_at_k_is_the_mean_over_all_subsets(right, k):
  subsets = list(itertools.combinations(right, k))
  expected = np.mean([max(s) for s in subsets])
  np.testing.assert_allclose(evaluate.pass_at_k([sum(right)], len(right), k), [expected])


@pytest.mark.parametrize(
  "name", ["pass_at_2_n4_c1", "pass_at_8_n16_c3", "pass_at_4_n8_c0", "pass_at_1_n8_c8", "pass_at_100_n200_c2"]
)
def test_pass_at_k_of_a_stored_case(name):
  inputs, expected = OTHERS[name]["extra"]["inputs"], OTHERS[name]["extra"]["expected"]
  got = evaluate.pass_at_k([inputs["c"]], inputs["n"], inputs["k"])
  np.testing.assert_allclose(got, [expected["value"]], rtol=1e-10)


def test_pass_at_k_refuses_more_than_was_sampled():
  with pytest.raises(ValueError, match="pass@9 needs at least 9 samples per question; there are 8"):
    evaluate.pass_at_k([1], 8, 9)


@pytest.mark.parametrize(
  ("answers", "right", "expected"),
  [
    (["3", "3", "4"], [0, 0, 1], 0.0),  # the right one is outvoted
    (["3", "4", "4"], [0, 1, 1], 1.0),
    (["3", "4", "3", "4"], [0, 1, 0, 1], 0.5),  # a tie counts half
    ([None, None, "4"], [0, 0, 1], 1.0),  # silence does not vote
    ([None, None], [0, 0], 0.0),
  ],
)
def test_majority(answers, right, expected):
  assert evaluate.majority(answers, right) == expected


def test_summary_by_hand():
  right = np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], np.float32)
  answers = [["1", "1", "2", ""], [None] * 4, ["5"] * 4]
  length = np.array([[1, 2, 3, 4], [4, 4, 4, 4], [1, 1, 1, 1]])
  ended = np.array([[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]], bool)
  seen = evaluate.summarise(evaluate.per_question(right, answers, length, ended), 4)
  assert seen["eval/pass@1"] == pytest.approx(0.5) == seen["eval/avg@4"]
  assert seen["eval/pass@4"] == pytest.approx(2 / 3)
  assert seen["eval/maj@4"] == pytest.approx(2 / 3)
  assert seen["eval/answered"] == pytest.approx(7 / 12)  # right or wrong
  assert seen["eval/mean_length"] == pytest.approx((2.5 + 4 + 1) / 3)
  assert seen["eval/clipped_ratio"] == pytest.approx(5 / 12)
  assert seen["eval/pass@1_ci95"] == pytest.approx(1.96 * 0.5 / np.sqrt(3))
  one = evaluate.summarise(evaluate.per_question(right[:1], answers[:1], length[:1], ended[:1]), 4)
  assert "eval/pass@1_ci95" not in one and one["eval/pass@1"] == right[0].mean()


def test_a_bootstrap_resamples_whole_questions():
  """Of two questions the resampled mean is 0, 1/2 or 1; of a hundred, its spread is the standard error."""
  low, high = evaluate.bootstrap(np.array([[0.0, 5.0, 2.0], [1.0, 5.0, 0.0]]))
  assert low.tolist() == [0, 5, 0] and high.tolist() == [1, 5, 2]
  values = np.repeat([[0.0], [1.0]], [70, 30], axis=0)
  low, high = evaluate.bootstrap(values)
  assert (high - low)[0] / 2 == pytest.approx(1.96 * np.sqrt(0.3 * 0.7 / 100), rel=0.06)
  assert low[0] < 0.3 < high[0]


def test_a_bootstrap_interval_covers_what_it_should():
  """Of a skewed distribution with mean 1, where 60 questions are few: a little under 95 %."""
  rng = np.random.default_rng(0)
  values = rng.exponential(size=(60, 400))
  low, high = evaluate.bootstrap(values, resamples=1000)
  assert 0.88 < np.mean((low < 1) & (high > 1)) < 0.98
