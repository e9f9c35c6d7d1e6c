"""Identities between variants, on drawn batches, in float64."""

from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_toys import random_batch, recipe

from grpojax import objective as lib
from grpojax.objective import advantage, ratio, surrogate

SEEDS = st.integers(0, 10**6)
SIZES = st.sampled_from([2, 3, 6])  # G; each is a program
few = settings(max_examples=15, deadline=None, derandomize=True)
AT_OLD = (
  "base", "gspo", "gspo_token", "gmpo", "sapo", "grpo_s", "rloo", "cispo", "dppo", "prime", "m2po", "topr",
)  # fmt: skip


@jax.jit
def slope(objective, batch, logp):
  prepared = lib.prepare(objective, batch, logp)
  return jax.value_and_grad(lambda x: lib.loss(objective, x, prepared)[0])(logp)


@partial(jax.jit, static_argnums=0)
def compiled(fn, *args, **knobs):
  """fn in one program: each of its operations alone would compile as long."""
  return fn(*args, **knobs)


def solve(o, batch, logp):
  """(loss, gradient) of an objective config, in float64."""
  with jax.enable_x64(True):
    loss, grad = slope(lib.build(o), batch, logp)
    return float(loss), np.asarray(grad)


def config(name="base", **slots):
  o = recipe(name).objective
  for slot, value in slots.items():
    o[slot] = value
  return o


def close(x, y, tolerance=1e-10):
  np.testing.assert_allclose(x, y, rtol=1e-8, atol=tolerance)


@few
@given(SEEDS)
def test_on_policy_all_sequence_means_have_one_gradient(seed):
  """−A / (rows · n): the variants differ only off-policy."""
  batch, _ = random_batch(seed, P=3)
  same = dict(
    advantage=dict(fn="zscore"), aggregate=dict(fn="sequence_mean"), penalty={}, select={}, shape={}
  )
  batch = batch._replace(sampler_logp=batch.old_logp)
  grads = [solve(config(name, **same), batch, batch.old_logp)[1] for name in AT_OLD]
  with jax.enable_x64(True):
    prepared = compiled(lib.prepare, lib.build(config(**same)), batch)
  for grad in grads:
    close(grad, -prepared.advantage * prepared.weight)


@few
@given(SEEDS, st.sampled_from(["center", "zscore", "leave_one_out"]))
def test_gspo_and_its_token_form_are_one_for_advantages_per_completion(seed, fn):
  batch, theta = random_batch(seed, P=3)
  slots = dict(advantage=dict(fn=fn), surrogate=dict(fn="ppo_clip", low=0.05, high=0.1))
  one, two = (solve(config(name, **slots), batch, theta["logp"]) for name in ("gspo", "gspo_token"))
  close(one[0], two[0])
  close(one[1], two[1])


@few
@given(SEEDS, SIZES)
def test_rloo_with_dr_grpo_is_dr_grpo_times_n_over_n_minus_one(seed, G):
  batch, theta = random_batch(seed, P=3, G=G)
  batch = batch._replace(valid=np.ones((3, G), bool))
  one, two = (solve(config(name), batch, theta["logp"]) for name in ("short_rlhf", "dr_grpo"))
  close(one[0], two[0] * G / (G - 1))
  close(one[1], two[1] * G / (G - 1))


@few
@given(SEEDS, SIZES)
def test_gtpo_of_equal_entropies_and_lengths_is_grpo(seed, G):
  batch, theta = random_batch(seed, P=3, G=G)
  equal = batch._replace(
    mask=np.ones_like(batch.mask),
    valid=np.ones((3, G), bool),
    reward=batch.accuracy,
    entropy=np.full_like(batch.mask, 0.3),
  )
  gtpo = config("gtpo", advantage=dict(fn="gtpo", eps=1e-12))
  grpo = config("gtpo", advantage=dict(fn="zscore", eps=1e-12, ddof=0))
  close(solve(gtpo, equal, theta["logp"])[1], solve(grpo, equal, theta["logp"])[1])


@few
@given(SEEDS)
def test_a_filter_of_completions_is_a_batch_without_them(seed):
  """Masked or absent, an unfinished row is the same, but for the B of `constant`."""
  batch, theta = random_batch(seed, P=3)
  filtered = config("dapo", select=dict(it=dict(fn="finished")))
  masked = batch._replace(mask=batch.mask * batch.ended[..., None])
  one = solve(filtered, batch, theta["logp"])
  two = solve(config("dapo", select={}), masked, theta["logp"])
  close(one[0], two[0])
  close(one[1], two[1])


@few
@given(SEEDS)
def test_a_group_without_contrast_has_only_the_gradient_of_its_penalty(seed):
  batch, theta = random_batch(seed, P=3)
  flat = batch._replace(reward=np.full_like(batch.reward, 0.7))
  _, grad = solve(config("base"), flat, theta["logp"])
  np.testing.assert_array_equal(grad, 0)
  _, both = solve(config("grpo"), flat, theta["logp"])
  alone = config("grpo", advantage=dict(fn="raw"))
  _, penalty = solve(alone, flat._replace(reward=0 * flat.reward), theta["logp"])
  close(both, penalty)
  assert np.abs(both).max() > 0


@few
@given(SEEDS, st.floats(0.1, 10), st.floats(-5, 5))
def test_rewards_may_be_shifted_and_for_a_zscore_scaled(seed, scale, shift):
  batch, theta = random_batch(seed, P=3)
  other = batch._replace(reward=scale * batch.reward + shift)
  exact = dict(advantage=dict(fn="zscore", eps=0.0))
  close(*(solve(config(**exact), b, theta["logp"])[1] for b in (batch, other)))
  one, two = (solve(config("dr_grpo"), b, theta["logp"])[1] for b in (batch, other))
  close(scale * one, two, 1e-9)


@pytest.mark.slow
@few
@given(SEEDS)
def test_filler_groups_change_nothing_even_the_constant_denominator(seed):
  batch, theta = random_batch(seed, P=3)
  filled, logp = jax.tree.map(lambda x: np.concatenate([x, x]), (batch, theta["logp"]))
  filled = filled._replace(valid=np.concatenate([batch.valid, batch.valid & False]))
  for name in ("base", "dr_grpo", "dapo", "lite_ppo", "reinforce_pp", "luspo"):
    one, two = solve(config(name), batch, theta["logp"]), solve(config(name), filled, logp)
    close(one[0], two[0])
    close(one[1], two[1][:3])


NUMBER = st.floats(-4, 4)


@few
@given(NUMBER, st.floats(-3, 3), st.floats(1.5, 5))
def test_a_dual_clip_is_a_cap_on_the_ratio_of_bad_answers(log_ratio, value, floor):
  """TRL's delta: min(r, delta) first, then PPO; and |gain| ≤ floor |A| for A < 0."""
  gain = compiled(surrogate.dual_clip, log_ratio, -1.0, value, low=0.2, high=0.3, floor=floor)
  capped = (min(log_ratio, np.log(floor)), -1.0, value)
  np.testing.assert_allclose(gain, compiled(surrogate.ppo_clip, *capped, low=0.2, high=0.3), rtol=1e-5)
  if value < 0:
    assert gain >= floor * value * (1 + 1e-6)


@few
@given(NUMBER, st.floats(0.1, 3), st.sampled_from([-1, 1]), st.floats(0.2, 5))
def test_the_slope_of_sapo_is_4p_1_minus_p_and_that_of_cispo_never_zero(log_ratio, size, sign, tau):
  value = sign * size
  r = np.exp(log_ratio)
  p = 1 / (1 + np.exp(-tau * (r - 1)))
  slope = compiled(slope_of_sapo, log_ratio, value, tau)
  np.testing.assert_allclose(slope, value * r * 4 * p * (1 - p), rtol=1e-3, atol=1e-5)
  assert np.sign(compiled(slope_of_cispo, log_ratio, value)) == sign


def slope_of_sapo(log_ratio, value, tau):
  return jax.grad(lambda x: surrogate.sapo(x, -1.0, value, tau_pos=tau, tau_neg=tau))(log_ratio)


def slope_of_cispo(log_ratio, value):
  return jax.grad(lambda logp: surrogate.cispo(log_ratio, logp, value))(-1.0)


@few
@given(SIZES.flatmap(lambda G: st.lists(st.floats(-1e3, 1e3, width=32), min_size=G, max_size=G)))
def test_group_advantages_sum_to_zero(rewards):
  made, _ = random_batch(0, P=3, G=len(rewards))
  group = jax.tree.map(lambda x: x[2], made)._replace(reward=np.float64(rewards))
  with jax.enable_x64(True):
    for fn in (advantage.center, advantage.zscore, advantage.leave_one_out):
      close(np.sum(compiled(fn, group)), 0, 1e-8)


@few
@given(st.sampled_from([1, 2, 6]).flatmap(lambda n: st.lists(st.floats(-0.3, 0.3), min_size=n, max_size=n)))
def test_means_of_ratios_are_ordered(deltas):
  """Geometric ≤ arithmetic; a product is the geometric mean to the power of its length."""
  with jax.enable_x64(True):
    ones = np.ones(len(deltas))
    geometric, arithmetic, product = (
      compiled(fn, np.asarray(deltas), ones, ones)[0]
      for fn in (ratio.sequence, ratio.arithmetic, ratio.sequence_product)
    )
    assert geometric <= arithmetic + 1e-12
    close(product, len(deltas) * geometric)
