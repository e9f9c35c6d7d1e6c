"""prepare, loss and describe: what the metrics mean, and the switches of a correction."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from objective_toys import batch, group, random_batch, recipe

from grpojax import objective as lib
from grpojax.objective import advantage, penalty
from grpojax.types import Batch


def built(name="base", **slots):
  o = recipe(name).objective
  for slot, value in slots.items():
    o[slot] = value
  return lib.build(o)


def two_rows(log_ratio) -> tuple[Batch, np.ndarray]:
  """R = 1, 0; two tokens each; log π_old = -1 and log π_θ away from it by log_ratio [2, 2]."""
  old = np.full((1, 2, 2), -1, np.float32)
  made = batch([[1, 0]], old_logp=old, ref_logp=old - 0.5, sampler_logp=old)
  return made, old + np.float32([log_ratio])


# Single operations would compile one by one.
prepare, loss_of, describe = map(jax.jit, (lib.prepare, lib.loss, lib.describe))
slope_of = jax.jit(jax.grad(lambda logp, objective, prepared: lib.loss(objective, logp, prepared)[0]))


def watched(objective, made, logp, entropy=None) -> dict:
  return loss_of(objective, logp, prepare(objective, made), entropy)[1]


MIXED = [[0.5, -0.5], [0.5, -0.5]]  # A > 0 is clipped above 1.2, A < 0 below 0.8
APART = [[0.9, 0.1], [-0.9, -0.1]]  # means 0.5 and -0.5


@pytest.mark.parametrize(
  "log_ratio, slots, low, high",
  [
    (MIXED, dict(), 0.25, 0.25),
    (MIXED, dict(surrogate=dict(fn="linear")), 0, 0),
    (MIXED, dict(surrogate=dict(fn="cispo")), 0, 0),
    (MIXED, dict(surrogate=dict(fn="reinforce")), 0, 0),
    (MIXED, dict(ratio=dict(fn="geometric"), surrogate=dict(fn="linear")), 0.25, 0.25),
    (MIXED, dict(surrogate=dict(fn="ratio_band", low=0.9, high=1.1)), 0.5, 0.5),
    (MIXED, dict(ratio=dict(fn="sequence")), 0, 0),
    (APART, dict(ratio=dict(fn="sequence")), 0.5, 0.5),
    (APART, dict(ratio=dict(fn="sequence_token")), 0.5, 0.5),
    (APART, dict(), 0.25, 0.25),
  ],
)
def test_clipped_is_what_has_an_advantage_and_no_gradient(log_ratio, slots, low, high):
  made, logp = two_rows(log_ratio)
  seen = watched(built(**slots), made, logp)
  np.testing.assert_allclose(seen["clip_ratio/low_mean"], low)
  np.testing.assert_allclose(seen["clip_ratio/high_mean"], high)
  np.testing.assert_allclose(seen["clip_ratio/region_mean"], low + high)
  probability = np.exp(np.asarray(made.old_logp))  # of every token the same, so that shares tell the mass
  assert np.ptp(probability) == 0
  np.testing.assert_allclose(seen["clip_ratio/low_mass"], low * probability[0, 0, 0], rtol=1e-6)
  np.testing.assert_allclose(seen["clip_ratio/high_mass"], high * probability[0, 0, 0], rtol=1e-6)


def test_without_contrast_nothing_counts_as_clipped():
  made, logp = two_rows([[0.5, -0.5], [0.5, -0.5]])
  seen = watched(built(), made._replace(reward=jnp.ones((1, 2))), logp)
  assert float(seen["clip_ratio/region_mean"]) == 0


def test_entropy_and_divergences_are_means_over_tokens():
  made, logp = two_rows([[0.5, -0.5], [0.1, 9.0]])
  made = made._replace(mask=jnp.array([[[1.0, 1], [1, 0]]]))
  seen = watched(built(), made, logp, entropy=jnp.array([[[1.0, 2], [6, 100]]]))
  np.testing.assert_allclose(seen["entropy"], 3)
  x = np.array([0.5, -0.5, 0.1])
  np.testing.assert_allclose(seen["ppo_kl"], (np.exp(x) - 1 - x).mean(), rtol=1e-5)
  x = x + 0.5  # to the reference
  np.testing.assert_allclose(seen["kl"], (np.exp(-x) - 1 + x).mean(), rtol=1e-5)


def test_the_parts_of_the_loss_add_up_to_it():
  o = dict(penalty=dict(kl=dict(fn="kl_k2", beta=0.3), h=dict(fn="entropy_bonus", beta=0.01)))
  made, logp = two_rows([[0.5, -0.5], [0.1, 0.2]])
  objective = built(**o)
  loss, seen = loss_of(objective, logp, prepare(objective, made), -logp)
  parts = [value for key, value in seen.items() if key.startswith("loss/")]
  assert {"loss/policy", "loss/kl_k2", "loss/entropy_bonus"} <= set(seen)
  np.testing.assert_allclose(sum(parts), loss, rtol=1e-6)


@pytest.mark.parametrize("fn", ["token_mean", "sequence_mean", "sequence_sum", "constant"])
def test_an_entropy_bonus_means_the_same_under_every_aggregation(fn):
  made, theta = random_batch(0)
  knobs = dict(budget=100) if fn == "constant" else {}
  objective = built(
    aggregate=dict(fn=fn, **knobs), penalty=dict(h=dict(fn="entropy_bonus", beta=0.5))
  )
  seen = loss_of(objective, theta["logp"], prepare(objective, made), theta["entropy"])[1]
  np.testing.assert_allclose(seen["loss/entropy_bonus"], -0.5 * seen["entropy"], rtol=1e-5)


def test_an_entropy_bonus_pulls_and_its_absence_is_said():
  made, theta = random_batch(0)
  objective = built(penalty=dict(h=dict(fn="entropy_bonus", beta=0.5)))
  prepared, logp = prepare(objective, made), theta["logp"]
  slope = jax.jit(jax.grad(lambda h: loss_of(objective, logp, prepared, h)[0]))(np.ones(logp.shape))
  np.testing.assert_allclose(slope, -0.5 * prepared.token_mean_weight)
  with pytest.raises(ValueError, match="needs the entropies"):
    loss_of(objective, logp, prepared)


def mismatched(**switches) -> Batch:
  """ρ = 1 in the first row and 4 in the second, which IcePop's band rejects."""
  rho = np.log(np.float32([[[1, 1], [4, 4]]]))
  made = batch([[1, 0]], old_logp=rho, sampler_logp=0 * rho, ref_logp=rho)
  correct = dict(it=dict(fn="icepop", low=0.5, high=2.0, **switches))
  return prepare(built(correct=correct), made)


def test_a_rejected_row_stays_in_the_denominator_unless_it_is_renormalised():
  kept, gone = mismatched(), mismatched(renormalize=True)
  np.testing.assert_allclose(kept.weight[0], [[1 / 4, 1 / 4], [1 / 4, 1 / 4]])
  np.testing.assert_allclose(gone.weight[0], [[1 / 2, 1 / 2], [0, 0]])
  np.testing.assert_allclose(kept.is_weight[0], [[1, 1], [0, 0]])
  np.testing.assert_allclose(mismatched(batch_normalize=True).is_weight[0], [[2, 2], [0, 0]])
  assert float(describe(gone, gone.old_logp)["select/keep_rate"]) == 0.5


def test_a_sequence_factor_is_normalised_over_sequences():
  """Rows of 1 and 3 tokens with Π ρ = 1, 2: their mean is 1.5, whatever the lengths."""
  rho = np.log(np.float32([[[1, 9, 9], [2, 1, 1]]]))
  made = batch([[1, 0]], [[[1, 0, 0], [1, 1, 1]]], old_logp=rho, sampler_logp=0 * rho)
  correct = dict(it=dict(fn="sequence_truncated_is", high=5.0, batch_normalize=True))
  trust = prepare(built(correct=correct), made).is_weight
  np.testing.assert_allclose(trust[0, :, 0], [1 / 1.5, 2 / 1.5], rtol=1e-6)


def test_trust_weighs_the_policy_term_and_not_the_penalty():
  made, logp = two_rows([[0.1, 0.1], [0.1, 0.1]])
  made = made._replace(sampler_logp=made.old_logp - np.float32(np.log(0.5)))  # ρ = 1/2 everywhere
  kl = dict(kl=dict(fn="kl_k2", beta=1.0))
  plain = watched(built(penalty=kl), made, logp)
  halved = watched(built(penalty=kl, correct=dict(it=dict(fn="truncated_is"))), made, logp)
  np.testing.assert_allclose(halved["loss/policy"], 0.5 * plain["loss/policy"], rtol=1e-5)
  np.testing.assert_allclose(halved["loss/kl_k2"], plain["loss/kl_k2"])


def test_tokens_that_count_nothing_are_counted():
  """Of four tokens IcePop drops one and the veto two, of which it is one."""
  made, logp = two_rows([[0.1, 0.1], [-0.3, -0.3]])
  rho = np.log(np.float32([[[1, 1], [9, 1]]]))
  made = made._replace(sampler_logp=made.old_logp - rho)
  assert "trust/zero_mean" not in watched(built(), made, logp)
  icepop, opsm = dict(it=dict(fn="icepop")), dict(it=dict(fn="stale_failures", delta=0.2, anchor="old"))
  both = dict(correct=icepop, veto=opsm)
  for slots, share in (dict(correct=icepop), 0.25), (dict(veto=opsm), 0.5), (both, 0.5):
    np.testing.assert_allclose(watched(built(**slots), made, logp)["trust/zero_mean"], share)


def test_no_gradient_flows_through_what_a_veto_decides():
  """Here it decides softly, so that something could."""
  made, logp = two_rows([[0.1, 0.05], [-0.1, 0.0]])
  soft = Partial(lambda logp, batch: jax.nn.sigmoid(logp))
  fixed = Partial(lambda logp_, batch: jax.nn.sigmoid(logp))
  slopes = []
  for veto in (soft, fixed):
    objective = built()._replace(veto=(veto,))
    prepared = prepare(objective, made)
    slopes.append(slope_of(logp, objective, prepared))
  np.testing.assert_allclose(*slopes, rtol=1e-6)


def test_a_vetoed_row_has_no_gradient_and_is_not_called_clipped():
  made, logp = two_rows([[0.1, 0.1], [-0.21, -0.21]])
  objective = built(veto=dict(it=dict(fn="stale_failures", delta=0.2)))
  prepared = prepare(objective, made)
  slope = np.asarray(slope_of(logp, objective, prepared))
  assert np.all(slope[0, 0] != 0) and np.all(slope[0, 1] == 0)
  assert float(loss_of(objective, logp, prepared)[1]["clip_ratio/region_mean"]) == 0


def test_advantages_have_no_gradient_whatever_the_batch_hangs_on():
  made, logp = two_rows([[0.1, 0.05], [-0.1, 0.0]])  # unequal: the mean of white advantages is 0
  objective = built("reinforce_pp")

  def through_old(old):
    return loss_of(objective, logp, prepare(objective, made._replace(old_logp=old)))[0]

  np.testing.assert_array_equal(jax.jit(jax.grad(through_old))(made.old_logp), 0)


def test_describe_tells_hopeless_groups_from_solved_ones():
  made = batch(
    [[1, 1], [0, 0], [1, 0], [0.5, 0.5], [9, 9]],
    accuracy=[[1.0, 1], [0, 0], [1, 0], [1, 0], [1, 1]],
    valid=[[True, True]] * 4 + [[False, False]],
    ended=jnp.ones((5, 2), bool),
    old_logp=jnp.zeros((5, 2, 2)),
    sampler_logp=jnp.zeros((5, 2, 2)).at[2, 0, 0].set(np.log(2.0)),
  )
  seen = describe(prepare(built("dr_grpo"), made), made.old_logp)
  seen = {key: float(value) for key, value in seen.items()}
  assert seen["frac_reward_zero_std"] == 0.75
  assert seen["frac_reward_zero_std/all_wrong"] == seen["frac_reward_zero_std/all_right"] == 0.25
  assert seen["rows/invalid"] == 2
  assert (seen["advantage/min"], seen["advantage/max"]) == (-0.5, 0.5)
  np.testing.assert_allclose(seen["sampling/sampling_logp_difference/max"], np.log(2), rtol=1e-6)
  np.testing.assert_allclose(seen["sampling/sampling_logp_difference/mean"], np.log(2) / 16)
  np.testing.assert_allclose(seen["sampling/importance_sampling_ratio/min"], 0.5)
  np.testing.assert_allclose(seen["sampling/effective_sample_size"], 15.5**2 / (16 * 15.25))


def test_a_row_that_shaping_unscores_leaves_the_batchs_statistics_too():
  made = batch([[1, 0], [9, 0]], ended=[[True, True], [False, True]])
  lite = dict(advantage=dict(fn="raw"), rescale=dict(fn="batch_std", eps=0.0))
  drop = dict(it=dict(fn="finished_only"))
  got = prepare(built(**lite, shape=drop), made)
  np.testing.assert_allclose(got.advantage[0, 0], 3**0.5, rtol=1e-6)  # std of 1, 0, 0
  assert np.asarray(got.valid).all()  # but not the B of `constant`


def test_rows_that_shaping_unscores_have_no_advantage_whatever_is_subtracted_later():
  made = batch([[1, 0, 0, 1]], ended=[[True, False, True, True]])
  drop = dict(it=dict(fn="finished_only"))
  for rescale, each in ("whiten", 2), ("batch_zscore", 1):  # samples a row: its tokens, or itself
    slots = dict(advantage=dict(fn="raw"), rescale=dict(fn=rescale, eps=0.0), shape=drop)
    scored = np.repeat([1.0, 0.0, 1.0], each)
    expected = np.insert((scored - scored.mean())[::each] / scored.std(ddof=1), 1, 0.0)
    got = prepare(built(**slots), made).advantage[0]
    np.testing.assert_allclose(got, np.tile(expected[:, None], 2), rtol=1e-6, err_msg=rescale)


def test_close_policies_have_a_kl_with_digits():
  """e^x − 1 − x of x = 1e-4 is 5e-9, of which float32 has nothing left where e^x is near 1."""
  made, logp = two_rows([[1e-4, -1e-4], [2e-4, 5e-5]])
  x = np.float64(logp - made.old_logp)
  seen = watched(built(), made, logp)
  np.testing.assert_allclose(seen["ppo_kl"], (np.expm1(x) - x).mean(), rtol=2e-3)
  close = made._replace(ref_logp=made.old_logp)
  cost = jax.jit(penalty.kl_k3)(logp, close, None)
  np.testing.assert_allclose(cost, np.expm1(-x) + x, rtol=5e-3)


def test_no_contrast_is_no_advantage_also_of_a_mixed_baseline_and_of_entropies():
  same = group([0.1] * 3, baseline=np.full(3, 0.7, np.float32))
  mixed = jax.jit(advantage.mixed_baseline)
  assert not np.any(mixed(same, mix=1.0)) and np.all(mixed(same, mix=0.5))
  mask = np.float32([[1] * 7, [1] * 5 + [0] * 2, [1] * 3 + [0] * 4, [1] * 6 + [0]])
  for entropy in (0.7, 1.3, 1e-9):  # the last is clamped
    made = group([1, 1, 1, 0], mask, entropy=np.full(mask.shape, entropy, np.float32))
    for fn in advantage.gtpo, advantage.grpo_s:
      assert not np.any(jax.jit(partial(fn, pool="own"))(made)), (fn, entropy)
  apart = made._replace(entropy=np.float32([[0.7], [0.71], [0.7], [0.7]]) + 0 * mask)
  assert np.any(jax.jit(partial(advantage.grpo_s, pool="own"))(apart))


def test_huge_ratios_stay_finite():
  made, logp = two_rows([[1e4, -1e4], [1e4, -1e4]])
  for name in ("grpo", "gspo", "gmpo", "grpo_s", "sapo", "cispo", "luspo"):
    objective = built(name)
    prepared = prepare(objective, made._replace(entropy=jnp.ones((1, 2, 2))))
    loss, slope = loss_of(objective, logp, prepared)[0], slope_of(logp, objective, prepared)
    assert np.isfinite(loss) and np.isfinite(slope).all(), name
