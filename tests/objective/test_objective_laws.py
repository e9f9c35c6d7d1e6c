"""What holds for every function of a slot, also for those that are not written yet.

An exemption names the function and the reason.
"""

from functools import partial

import jax
import numpy as np
import pytest
from objective_toys import MENU, bound, menu, random_batch

from grpojax.objective import advantage, aggregate, component, penalty, preference, ratio, rescale, surrogate
from grpojax.objective.preference import Pair
from grpojax.types import Batch

NO_BASELINE = (
  advantage.raw,  # it is the reward
  advantage.return_to_go,  # the baseline comes with whitening
  advantage.mixed_baseline,  # a baseline from outside does not move with the group
  advantage.pooled,  # neither does one from the pool
)
LOG_RATIOS = np.linspace(-3, 3, 61)


def group_of(batch: Batch, prompt: int) -> Batch:
  return jax.tree.map(lambda x: x[prompt], batch)


def test_every_function_says_its_formula():
  for name, fn in MENU.items():
    assert len((fn.__doc__ or "").splitlines()[0]) > 3, name


@partial(jax.jit, static_argnums=0)
def slope(fn, log_ratio, advantage):
  """d gain / d log π, with log_ratio and log π moving together; log π_old = -2."""
  gain = lambda x: bound(fn)(x, x - 2.0, advantage)
  return jax.vmap(jax.grad(gain))(log_ratio)


@pytest.mark.parametrize("fn", menu("surrogate"))
@pytest.mark.parametrize("value", [-1.5, 0.0, 2.0])
def test_on_policy_a_surrogate_is_the_policy_gradient(fn, value):
  np.testing.assert_allclose(slope(fn, np.zeros(1), value), value, rtol=1e-5)


@pytest.mark.parametrize("fn", menu("surrogate"))
@pytest.mark.parametrize("value", [-1.5, 2.0])
def test_no_surrogate_makes_a_bad_answer_likelier(fn, value):
  assert (slope(fn, LOG_RATIOS, value) * value >= 0).all()


@pytest.mark.parametrize("fn", menu("surrogate"))
def test_without_advantage_there_is_no_gradient(fn):
  np.testing.assert_array_equal(slope(fn, LOG_RATIOS, 0.0), 0)


MASK = np.array([1.0, 1, 0, 1, 0])
SIGNS = np.array([1.0, -1, 1, 1, -1])


@pytest.mark.parametrize("fn", menu("ratio"))
def test_on_policy_a_ratio_is_one(fn):
  np.testing.assert_allclose(bound(fn)(np.zeros(5), MASK, SIGNS), 0, atol=1e-6)


@pytest.mark.parametrize("fn", menu("ratio"))
def test_a_ratio_is_blind_to_what_is_masked(fn):
  delta = np.array([0.3, -0.2, 0.0, 0.1, 0.0])
  other = np.where(MASK > 0, delta, np.array([5.0, 5, 7, 5, -9]))
  on = np.asarray(MASK) > 0
  got = [bound(fn)(x, MASK, SIGNS)[on] for x in (delta, other)]
  np.testing.assert_allclose(*got, rtol=1e-6)


@pytest.mark.parametrize("fn", menu("ratio"))
def test_on_policy_every_token_is_pulled_alike(fn):
  if fn is ratio.sequence_product:
    pytest.skip("a product pulls each token once for every token, n times")
  gradient = jax.jit(jax.grad(lambda d: (MASK * bound(fn)(d, MASK, np.ones(5))).sum()))(np.zeros(5))
  np.testing.assert_allclose(gradient, MASK, atol=1e-6)


@pytest.mark.parametrize("fn", menu("ratio"))
def test_an_empty_completion_has_a_finite_ratio_and_slope(fn):
  both = jax.jit(jax.value_and_grad(lambda d: bound(fn)(d, 0 * MASK, SIGNS).sum()))
  value, gradient = both(np.zeros(5))
  assert np.isfinite(value) and np.isfinite(gradient).all()


@pytest.mark.parametrize("fn", menu("advantage"))
def test_an_advantage_ignores_a_bonus_given_to_all(fn):
  if fn in NO_BASELINE or fn in (advantage.gtpo, advantage.grpo_s, advantage.maxrl):
    pytest.skip("no baseline; GTPO gives what shaping adds to right answers alone; MaxRL divides by the mean")
  one = group_of(random_batch(1)[0], 2)
  got = [bound(fn)(one._replace(reward=one.reward + bonus)) for bonus in (0.0, 10.0)]
  np.testing.assert_allclose(*got, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fn", menu("advantage"))
@pytest.mark.parametrize("equal", [0.0, 0.7, 123.4])
def test_an_advantage_vanishes_without_contrast(fn, equal):
  """In float32 the naive quotient of eight rewards of 123.4 is 0.83."""
  if fn in NO_BASELINE:
    pytest.skip("no baseline")
  one = group_of(random_batch(1, G=8)[0], 2)
  right = np.full(8, float(equal > 0))
  extra = one.extra | dict(step_score=np.full((8, 3), equal), part=np.full((8, 3), np.float32(equal)))
  turns = one.turns._replace(reward=np.zeros((8, 3)), invalid=np.zeros((8, 3), bool))
  one = one._replace(reward=np.float32(right * 0 + equal), accuracy=right, extra=extra, turns=turns)
  np.testing.assert_array_equal(bound(fn)(one), 0)


@pytest.mark.parametrize("fn", menu("advantage"))
def test_an_unscored_row_changes_nobody_elses_advantage(fn):
  one = group_of(random_batch(1)[0], 2)
  scored = one._replace(valid=np.array([True, True, True, False]))
  poisoned = scored._replace(
    reward=np.where(scored.valid, one.reward, 1e9),
    extra=jax.tree.map(lambda x: np.where(np.arange(4) < 3, x.T, 7).T, one.extra),
    turns=jax.tree.map(lambda x: np.where(np.arange(4) < 3, x.T, 2).T.astype(x.dtype), one.turns),
  )
  alone = jax.tree.map(lambda x: x[:3], one)
  for batch in (scored, poisoned):
    np.testing.assert_allclose(bound(fn)(batch)[:3], bound(fn)(alone), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fn", menu("advantage"))
def test_a_group_of_one_is_finite(fn):
  one = group_of(random_batch(1, G=1)[0], 2)
  assert np.isfinite(bound(fn)(one)).all()


@pytest.mark.parametrize("fn", menu("advantage"))
def test_a_group_advantage_sums_to_zero(fn):
  several_scales = (
    advantage.leave_one_out_zscore, advantage.grpo_s, advantage.opo, advantage.optimal_baseline,
  )  # fmt: skip
  one = group_of(random_batch(1)[0], 2)
  got = bound(fn)(one)
  if fn in NO_BASELINE or fn in several_scales or got.ndim == 2:
    pytest.skip("no baseline, rows divided by different deviations or weighted, or one advantage per token")
  np.testing.assert_allclose(np.sum(got), 0, atol=1e-5)


@pytest.mark.parametrize("fn", menu("rescale"))
def test_rescaling_is_blind_to_what_is_masked(fn):
  batch, _ = random_batch(1)
  masked = np.where(batch.valid[..., None], batch.mask, 0.0)
  batch = batch._replace(mask=masked)
  rows = np.where(batch.valid & (masked.sum(-1) > 0), batch.reward, 0.0)
  if fn is rescale.batch_zscore:
    advantages = [rows, np.where(batch.valid, rows, 1e6)]  # it sees completions
  else:
    tokens = np.broadcast_to(rows[..., None], masked.shape)
    advantages = [tokens, np.where(masked > 0, tokens, 1e6)]
  got = [np.asarray(bound(fn)(x, batch)) for x in advantages]
  on = (masked > 0) if got[0].ndim == 3 else batch.valid
  np.testing.assert_allclose(got[0][on], got[1][on], rtol=1e-5)


@pytest.mark.parametrize("fn", menu("select"))
def test_a_filter_is_zero_or_one_and_fits_the_mask(fn):
  batch, _ = random_batch(1)
  keep = np.asarray(bound(fn)(batch))
  assert set(np.unique(keep)) <= {0, 1}
  assert np.broadcast_shapes(keep.shape, batch.mask.shape) == batch.mask.shape
  assert keep.ndim == 3 and 0 < keep.mean() < 1


@pytest.mark.parametrize("fn", menu("correct"))
def test_without_mismatch_nothing_is_corrected(fn):
  batch, _ = random_batch(1)
  factor = bound(fn)(batch._replace(sampler_logp=batch.old_logp))
  np.testing.assert_allclose(factor, 1, rtol=1e-6)


THETA_READERS = [*menu("veto"), *menu("batch_veto")]


@pytest.mark.parametrize("fn", [*menu("correct"), *THETA_READERS])
def test_trust_is_never_negative_and_blind_to_what_is_masked(fn):
  batch, theta = random_batch(1)
  batch = batch._replace(advantage=batch.old_logp)
  seen = (theta["logp"], batch) if fn in THETA_READERS else (batch,)
  masked = batch.mask > 0
  noise = lambda x: np.where(masked, x, x + 5)
  other = batch._replace(sampler_logp=noise(batch.sampler_logp), old_logp=noise(batch.old_logp))
  also = (noise(theta["logp"]), other) if fn in THETA_READERS else (other,)
  got = [np.broadcast_to(bound(fn)(*args), masked.shape)[masked] for args in (seen, also)]
  assert (got[0] >= 0).all()
  np.testing.assert_array_equal(*got)


@pytest.mark.parametrize("fn", THETA_READERS)
def test_where_the_policy_has_not_moved_nothing_is_vetoed(fn):
  batch, _ = random_batch(1)
  batch = batch._replace(advantage=-np.ones_like(batch.mask), old_logp=batch.sampler_logp)
  assert np.all(bound(fn)(batch.sampler_logp, batch) == 1)


@pytest.mark.parametrize("fn", menu("shape"))
def test_shaping_touches_reward_valid_and_old_logp_only(fn):
  """And what is to become of log π_old where it depends on θ."""
  batch, _ = random_batch(1)
  shaped = bound(fn).__wrapped__(batch)  # not compiled: it gives the same objects
  restored = shaped._replace(
    reward=batch.reward, valid=batch.valid, old_logp=batch.old_logp, prox_share=batch.prox_share
  )
  assert all(x is y for x, y in zip(restored, batch, strict=True))
  assert any(x is not y for x, y in zip(shaped, batch, strict=True))
  assert not (np.asarray(shaped.valid) & ~batch.valid).any()


@pytest.mark.parametrize("fn", menu("aggregate"))
def test_a_weight_is_positive_on_the_mask_and_zero_behind_it(fn):
  batch, _ = random_batch(1)
  weight = np.asarray(bound(fn)(batch))
  np.testing.assert_array_equal(weight > 0, batch.mask > 0)


@pytest.mark.parametrize("fn", menu("aggregate"))
def test_an_empty_batch_has_no_weight_and_no_nan(fn):
  batch, _ = random_batch(1)
  empty = batch._replace(mask=0 * batch.mask, valid=batch.valid & False)
  np.testing.assert_array_equal(bound(fn)(empty), 0 * batch.mask)


@pytest.mark.parametrize("fn", menu("aggregate"))
def test_filler_rows_change_no_weight(fn):
  """A group that only fills the shape is not valid and has no token."""
  batch, _ = random_batch(1)
  filler = batch._replace(mask=0 * batch.mask, valid=batch.valid & False)
  longer = bound(fn)(jax.tree.map(lambda *x: np.concatenate(x), batch, filler))
  np.testing.assert_allclose(longer[: len(batch.mask)], bound(fn)(batch), rtol=1e-6)


@pytest.mark.parametrize(
  "name", ["token_mean", "sequence_mean", "prompt_mean", "turn_mean", "trajectory_turn_mean"]
)
def test_a_mean_has_weights_that_sum_to_one(name):
  batch, _ = random_batch(1)
  weight = bound(getattr(aggregate, name))(batch)
  np.testing.assert_allclose(np.sum(weight), 1, rtol=1e-6)


@pytest.mark.parametrize("fn", menu("penalty"))
def test_at_the_reference_a_penalty_is_zero(fn):
  if fn is penalty.entropy_bonus:
    pytest.skip("entropy has no reference")
  batch, _ = random_batch(1)
  batch = batch._replace(ref_logp=batch.sampler_logp)  # which some take for the reference
  cost = bound(fn)(batch.ref_logp, batch, None)
  np.testing.assert_allclose(cost, 0, atol=1e-6)


@pytest.mark.parametrize("fn", menu("penalty"))
def test_a_divergence_is_never_negative(fn):
  if fn in (penalty.entropy_bonus, penalty.kl_k1, penalty.kl_k1_corrected):
    pytest.skip("only its mean is")
  batch, theta = random_batch(1)
  cost = bound(fn)(theta["logp"], batch, None)
  assert np.min(cost) >= -1e-6


V, POLICY, TEACHER = 5, np.array([0.1, -0.4, 0.8, 0.0, -1.0]), np.array([0.5, 0.5, -0.2, -0.3, 0.1])


def each_token(logits) -> tuple:
  """log π [1, 1, V] of every token there is, and a batch of them, sampled from it."""
  logp = jax.nn.log_softmax(logits)[None, None]
  known, teacher = (x[None, None] - np.log(np.exp(x).sum()) for x in (POLICY, TEACHER))
  ones = np.ones((1, 1, V))
  row = np.ones((1, 1))
  return logp, Batch(
    ones, row, row, row > 0, row > 0, sampler_logp=known, old_logp=known, teacher_logp=teacher
  )


def to_the_teacher(cost, logits):
  """Σ π cost over all tokens, with probabilities as they were: what is expected of a sample's loss."""
  logp, batch = each_token(logits)
  return (np.exp(batch.sampler_logp) * cost(logp, batch)).sum()


def by_gap(logp, batch):
  """The policy term whose advantage is the gap to the teacher."""
  advantage = rescale.opd(np.zeros((1, 1)), batch)
  return -surrogate.reinforce(logp - batch.old_logp, logp, advantage)


@pytest.mark.parametrize("cost", [component.ref_kl, component.opd, by_gap])
def test_on_policy_distillation_climbs_down_the_divergence_from_the_teacher(cost):
  """∇ Σ π (log π − log π_T), enumerated over the vocabulary."""

  def divergence(logits):
    log_policy = jax.nn.log_softmax(logits)
    return (np.e**log_policy * (log_policy - jax.nn.log_softmax(TEACHER))).sum()

  with jax.enable_x64(True):
    got = jax.jit(jax.grad(partial(to_the_teacher, cost)))(POLICY)
    np.testing.assert_allclose(got, jax.grad(divergence)(POLICY), rtol=1e-9)
  assert np.abs(got).max() > 0.01


@pytest.mark.parametrize("fn", menu("component"))
def test_where_teacher_and_policy_are_one_there_is_nothing_to_distil(fn):
  if fn in (component.ce, component.gkd):
    pytest.skip("it has no teacher; its cost is what the update has computed")
  batch, _ = random_batch(1)
  batch = batch._replace(old_logp=batch.teacher_logp, sampler_logp=batch.teacher_logp)
  cost, slope = jax.jit(jax.value_and_grad(lambda x: bound(fn)(x, batch).sum()))(batch.teacher_logp)
  np.testing.assert_allclose(cost, 0, atol=1e-6)
  np.testing.assert_allclose(slope, 0, atol=1e-6)


@pytest.mark.parametrize("fn", menu("stream"))
def test_a_stream_is_zero_or_one_for_each_token_and_has_some_of_each(fn):
  batch, _ = random_batch(1)
  chosen = np.asarray(bound(fn)(batch))
  assert chosen.shape == batch.mask.shape and set(np.unique(chosen)) == {0, 1}


LOG_PROBS = [(-1.0, -3.0), (-3.0, -1.0), (-9.0, -2.0)]  # of the chosen and of the rejected completion


def of_pair(fn, policy, reference=(-2.0, -2.5)):
  cost = lambda x: bound(fn)(Pair(x, np.array(reference), np.array([2, 5])))
  return jax.jit(jax.value_and_grad(cost))(np.array(policy))


@pytest.mark.parametrize("policy", LOG_PROBS)
@pytest.mark.parametrize("fn", menu("preference"))
def test_a_pair_pulls_its_completions_apart(fn, policy):
  """Those whose loss has no minimum."""
  cost, (chosen, rejected) = of_pair(fn, policy)
  if fn is not preference.ipo:  # which comes back beyond its distance
    assert cost > 0 and chosen < 0 < rejected
  length = np.array([1, 1]) if fn is preference.dpo else np.array([2, 5])
  np.testing.assert_allclose(chosen * length[0], -rejected * length[1], rtol=1e-5)  # by what one gains


@pytest.mark.parametrize("fn", menu("preference"))
def test_a_pair_that_is_told_apart_costs_less(fn):
  costs = [of_pair(fn, (x, -3.0))[0] for x in (-2.5, -2.0, -1.5)]
  assert costs[0] > costs[1] > costs[2]


@pytest.mark.parametrize("beta", [0.1, 2.0])
def test_at_the_reference_a_pair_costs_log_two_and_is_pulled_by_half_of_beta(beta):
  pair = Pair(np.array([-1.0, -7.0]), np.array([-1.0, -7.0]), np.array([3, 1]))
  cost, slope = jax.value_and_grad(lambda x: preference.dpo(pair._replace(policy=x), beta=beta))(pair.policy)
  np.testing.assert_allclose(cost, np.log(2), rtol=1e-6)
  np.testing.assert_allclose(slope, [-beta / 2, beta / 2], rtol=1e-6)
