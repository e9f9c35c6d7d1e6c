"""Success rates of prompts: against sums written out, and what they do to the drawing."""

import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from grpojax.data import pipeline
from grpojax.rollout import curriculum
from grpojax.rollout.curriculum import Last, Outcomes


def config(**changes):
  defaults = dict(kind="ema", rate=0.3, weighted=True, floor=0.05, too_hard=0.05, too_easy=0.95)
  defaults["drop_solved"] = 0.0
  return ConfigDict(defaults | changes)


def outcomes(*triples):
  ids, right, count = zip(*triples, strict=True)
  return Outcomes(np.array(ids, np.int32), np.array(right, np.float32), np.array(count, np.float32))


def test_a_moving_average_of_the_groups_accuracies():
  c = config()
  d = curriculum.start(c, 3, 4, 5)
  seen = outcomes((0, 4, 4), (2, 1, 4), (0, 0, 4), (1, 0, 0))  # prompt 0 twice, 1 without a verdict
  d = curriculum.update(c, d, seen.id, seen)
  expected = [0.7 * (0.7 * 0.5 + 0.3 * 1) + 0.3 * 0, 0.5, 0.7 * 0.5 + 0.3 * 0.25]
  np.testing.assert_allclose(curriculum.rate(d), expected, rtol=1e-6)
  np.testing.assert_allclose(d.successes + d.failures, 1, rtol=1e-6)
  assert d.successes.dtype == np.float32


def test_spo_counts_completions_and_forgets_what_the_policy_has_left_behind():
  c = config(kind="beta")
  d = curriculum.start(c, 2, 1, 3)
  eight = outcomes((0, 6, 8), (1, 0, 8))
  d = curriculum.begin(c, curriculum.survey(d, eight.id, eight))
  np.testing.assert_allclose(curriculum.rate(d), [6.5 / 9, 0.5 / 9], rtol=1e-6)
  one = outcomes((1, 1, 1))
  d = curriculum.update(c, d, one.id, one, keep=np.array([0.9], np.float32))
  np.testing.assert_allclose([d.successes[1], d.failures[1]], [0.9 * 0.5 + 1, 0.9 * 8.5], rtol=1e-6)
  np.testing.assert_allclose(d.successes[0], 6.5)
  three = outcomes((0, 2, 3))
  d = curriculum.update(c, d, three.id, three, keep=np.ones(1, np.float32))
  np.testing.assert_allclose([d.successes[0], d.failures[0]], [8.5, 3.5], rtol=1e-6)


def test_a_survey_gives_moving_averages_their_start_and_no_weight():
  c = config()
  d = curriculum.start(c, 2, 4, 3)
  for part in (outcomes((0, 3, 4)), outcomes((0, 4, 4))):
    d = curriculum.survey(d, part.id, part)
  d = curriculum.begin(c, d)
  np.testing.assert_allclose(curriculum.rate(d), [7.5 / 9, 0.5], rtol=1e-6)
  np.testing.assert_allclose(d.successes + d.failures, 1, rtol=1e-6)


def test_what_is_solved_is_drawn_only_when_nothing_else_is_left():
  c = config(rate=1.0, weighted=False, drop_solved=0.9)
  d = curriculum.start(c, 40, 4, 3)
  assert curriculum.draw_weights(config(weighted=False), d, None) is None
  seen = outcomes(*((row, 4, 4) for row in range(20)), (20, 3, 4), (21, 0, 4))
  d = curriculum.update(c, d, seen.id, seen)
  np.testing.assert_array_equal(curriculum.solved(c, d), np.arange(40) < 20)
  assert not curriculum.solved(config(), d).any()
  assert curriculum.describe(c, d)["difficulty/dropped"] == 0.5
  assert "difficulty/dropped" not in curriculum.describe(config(), d)
  mixture = np.linspace(1, 2, 40).astype(np.float32)
  for weights in curriculum.draw_weights(c, d, None), curriculum.draw_weights(c, d, mixture):
    for number in range(30):
      assert (pipeline._draw(weights, 20, 0, number) >= 20).all()
    last = np.concatenate([pipeline._draw(weights, 30, 0, number)[20:] for number in range(30)])
    assert (last < 20).all() and len(set(last)) == 20  # and then any of them
  np.testing.assert_array_equal(curriculum.draw_weights(c, d, mixture)[20:], mixture[20:])


def test_the_discount_is_the_mean_distance_over_the_tokens_of_the_last_completions():
  d = curriculum.start(config(kind="beta"), 4, 2, 3)
  logp = np.full((1, 2, 3), -1, np.float32)
  last = Last(np.ones((1, 2, 3), np.int32), np.array([[1, 2]], np.int32), logp)
  d = curriculum.saw(d, np.array([2]), last)
  now = np.array([[[-1.003, 9, 9], [-0.991, -1.0, np.nan]]], np.float32)  # 0.012 over 3 tokens
  never = np.zeros_like(now)
  got = curriculum.keep(d, np.array([2, 0]), np.concatenate([now, never]))
  np.testing.assert_allclose(got, [2 ** (-0.004 / 0.06), 1], rtol=1e-4)


def test_nothing_is_changed_in_place():
  c = config(kind="beta")
  d = curriculum.start(c, 2, 1, 3)
  one = outcomes((1, 1, 1))
  curriculum.update(c, d, one.id, one, keep=np.array([0.9], np.float32))
  curriculum.survey(d, one.id, one)
  last = Last(np.ones((1, 1, 3), np.int32), np.ones((1, 1), np.int32), np.ones((1, 1, 3), np.float32))
  curriculum.saw(d, one.id, last)
  assert (d.successes == 0.5).all() and (d.failures == 0.5).all() and (d.last.length == 0).all()


def test_buckets_are_shares_of_the_prompts():
  c = config()
  d = curriculum.start(c, 4, 1, 1)._replace(
    successes=np.array([0.01, 0.5, 0.99, 0.96], np.float32),
    failures=np.array([0.99, 0.5, 0.01, 0.04], np.float32),
  )
  seen = curriculum.describe(c, d)
  assert [seen[f"difficulty/{k}"] for k in ("too_hard", "learnable", "too_easy")] == [0.25, 0.25, 0.5]


class Rows:
  """A split of 40 prompts of one token each."""

  name, budget, weights = "train", 1, None
  records = [{}] * 40
  prompts = [np.zeros(1, np.int32)] * 40
  ids = np.arange(40, dtype=np.int32)


class Tokenizer:
  pad_token_id = 0


def test_prompts_are_drawn_in_proportion_and_by_number_alone():
  weights = np.where(np.arange(40) < 4, 10.0, 0.1).astype(np.float32)
  stream = pipeline.Stream(Rows, Tokenizer, 4, seed=0)
  drawn = np.stack([stream.next(weights).id for _ in range(300)])
  assert all(len(set(batch)) == 4 for batch in drawn.tolist())
  assert (drawn < 4).mean() > 0.8 and len(np.unique(drawn)) > 30  # the light ones still come
  again = pipeline.Stream(Rows, Tokenizer, 4, seed=0)
  again.set_state({"position": 7})
  np.testing.assert_array_equal(again.next(weights).id, drawn[7])
  shares = [pipeline.Stream(Rows, Tokenizer, 4, 0, rank, 2).next(weights).id for rank in range(2)]
  np.testing.assert_array_equal(np.concatenate(shares), drawn[0])
  other = pipeline.Stream(Rows, Tokenizer, 4, seed=1)
  assert not np.array_equal(np.stack([other.next(weights).id for _ in range(9)]), drawn[:9])


@pytest.mark.parametrize("pair", [(0, 1), (2, 3)])
def test_the_first_of_two_is_drawn_by_its_share_of_the_weight(pair):
  """Without replacement the first place follows the weights: 3 against 1."""
  weights = np.full(40, 1e-9, np.float32)
  weights[list(pair)] = [3, 1]
  stream = pipeline.Stream(Rows, Tokenizer, 2, seed=pair[0])
  first = np.array([stream.next(weights).id[0] for _ in range(4000)])
  assert abs((first == pair[0]).mean() - 0.75) < 0.025  # three and a half standard errors


def test_a_beta_tracker_forgets_with_the_distance_of_the_policies():
  got = curriculum.beta_keep(jnp.array([0.0, 0.006, 9.0]))
  np.testing.assert_allclose(got, [0.96, 2**-0.1, 0.875], rtol=1e-6)


def test_a_beta_tracker_converges_to_the_rate_of_success():
  a, b = 4.0, 4.0
  for step in range(2000):
    a, b = curriculum.beta_update(a, b, float(step % 4 == 0), keep=0.999)
  np.testing.assert_allclose(curriculum.beta_mean(a, b), 0.25, atol=0.01)


def test_hopeless_and_solved_prompts_are_still_drawn():
  got = curriculum.prompt_weight(jnp.array([0.0, 0.5, 1.0]))
  np.testing.assert_allclose(got, [0.05, 0.55, 0.05], rtol=1e-6)
