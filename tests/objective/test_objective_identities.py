"""Where one newer variant becomes another, or an older one: on drawn batches, in float64."""

import jax
import numpy as np
import pytest
from objective_toys import group, random_batch
from test_objective_properties import close, config, solve

from grpojax import objective as lib
from grpojax.objective import advantage, batch_veto, stats

SEEDS = (0, 1, 2)
BYPASS = dict(it=dict(fn="bypass"))
each_seed = pytest.mark.parametrize("seed", SEEDS)


def same(seed: int, one: dict, two: dict, factor: float = 1.0, **fields):
  """Both slots' gradients of one batch are equal, the second's times `factor`."""
  batch, theta = random_batch(seed, P=3)
  batch = batch._replace(**fields)
  grads = [solve(config(**slots), batch, theta["logp"])[1] for slots in (one, two)]
  assert np.abs(grads[0]).max() > 1e-4
  close(grads[0], factor * grads[1])


def of_group(fn, reward, **fields) -> np.ndarray:
  with jax.enable_x64(True):
    made = group(reward, **fields)._replace(reward=np.float64(reward))
    return np.asarray(jax.jit(fn)(made))


@each_seed
def test_maxrl_times_the_mean_is_dr_grpo(seed):
  reward = np.random.default_rng(seed).integers(0, 2, 7) * 1.0
  reward[0] = 1.0 - reward[1]
  close(of_group(advantage.maxrl, reward) * reward.mean(), of_group(advantage.center, reward))


@each_seed
def test_opo_of_equal_lengths_is_dr_grpo_and_any_weighted_sum_is_zero(seed):
  rng = np.random.default_rng(seed)
  reward = rng.normal(size=5)
  close(of_group(advantage.opo, reward), of_group(advantage.center, reward))
  length = np.array([3, 1, 4, 2, 0])
  ragged = of_group(advantage.opo, reward, mask=np.arange(4) < length[:, None])
  close((length * ragged).sum(), 0)
  assert np.abs(ragged).max() > 0.1


@each_seed
def test_gdpo_of_one_reward_is_a_zscore_and_no_scale_of_a_reward_counts(seed):
  one = jax.tree.map(lambda x: x[2], random_batch(seed, P=3)[0])
  parts = np.random.default_rng(seed).normal(size=(4, 2))
  parts_of = lambda part: one._replace(
    extra=dict(part=part, part_valid=np.ones(part.shape), part_weight=np.ones(part.shape))
  )
  gdpo = jax.jit(lambda batch: advantage.gdpo(batch, eps=0.0))
  with jax.enable_x64(True):
    close(gdpo(parts_of(parts)), gdpo(parts_of(parts * [7.0, 0.01] + [0.0, 3.0])))
    zscore = jax.jit(lambda batch: advantage.zscore(batch, eps=0.0))(one._replace(reward=parts[:, 0]))
    close(gdpo(parts_of(parts[:, :1])), zscore)


@each_seed
@pytest.mark.parametrize("fn", ["dppo_tv", "dppo_kl"])
def test_a_trust_region_that_holds_all_is_cispo(seed, fn):
  wide = dict(surrogate=dict(fn=fn, low=1e3, high=1e3, w_max=1.1), shape=BYPASS)
  same(seed, wide, dict(surrogate=dict(fn="cispo", w_max=1.1), shape=BYPASS))


@each_seed
def test_the_forms_of_a_trust_region_have_one_gradient_and_a_wide_band_is_no_clip(seed):
  form = lambda form: dict(surrogate=dict(fn="dppo_tv", low=0.05, high=0.05, form=form))
  same(seed, form("sg"), form("grad"))
  same(seed, dict(surrogate=dict(fn="tv_band", delta=1.0)), dict(surrogate=dict(fn="linear")))


@each_seed
def test_log2_is_twice_k2_where_the_sampler_is_the_reference(seed):
  batch, _ = random_batch(seed, P=3)
  penalty = lambda fn, beta, **knobs: dict(penalty=dict(it=dict(fn=fn, beta=beta, **knobs)))
  same(seed, penalty("log2_kl", 0.5), penalty("kl_k2", 1.0), ref_logp=batch.sampler_logp)
  dro = penalty("log2_kl", 0.5, anchor="old")
  same(seed, dro, penalty("kl_k2", 1.0), ref_logp=batch.old_logp)


@each_seed
def test_vespo_of_k_one_and_no_decay_is_the_sequences_exact_ratio(seed):
  flat = dict(fn="vespo", k_pos=1.0, lambda_pos=0.0, k_neg=1.0, lambda_neg=0.0)
  exact = dict(ratio=dict(fn="sequence_product"), surrogate=dict(fn="cispo", w_max=1e9))
  same(seed, dict(ratio=dict(fn="sequence_product"), surrogate=flat), exact)


@each_seed
def test_gpg_is_dr_grpo_over_the_share_of_rewarded_rows(seed):
  batch, _ = random_batch(seed, P=3)
  reward = batch.accuracy
  center, valid = dict(fn="center"), np.ones(batch.valid.shape, bool)
  gpg = dict(advantage=center, rescale=dict(fn="gpg"))
  same(seed, gpg, dict(advantage=center), factor=1 / reward.mean(), reward=reward, valid=valid)


@each_seed
def test_m2po_without_a_limit_is_no_clip_and_knows_no_direction(seed):
  unlimited = dict(batch_veto=dict(it=dict(fn="m2po", tau=1e9)), surrogate=dict(fn="linear"))
  same(seed, unlimited, dict(surrogate=dict(fn="linear")))
  batch, theta = random_batch(seed, P=3)
  batch = batch._replace(advantage=batch.old_logp + 1)
  mirrored = batch._replace(advantage=-batch.advantage, old_logp=2 * theta["logp"] - batch.old_logp)
  veto = jax.jit(lambda batch: batch_veto.m2po(theta["logp"], batch, tau=0.01))
  with jax.enable_x64(True):
    np.testing.assert_array_equal(veto(batch), veto(mirrored))
    assert not np.all(veto(batch))


@each_seed
def test_what_m2po_keeps_is_what_is_left_of_removing_the_largest(seed):
  """The paper's loop, one element after the other, in numpy."""
  rng = np.random.default_rng(seed)
  x, on = rng.exponential(1.0, (4, 9)), rng.uniform(size=(4, 9)) < 0.7
  with jax.enable_x64(True):
    for limit in (0.0, 0.05, 0.3, 0.9, 2.0):
      kept = sorted(x[on])
      while kept and np.mean(kept) > limit:
        kept.pop()
      found = np.asarray(jax.jit(stats.smallest_with_mean)(x, on, limit))
      np.testing.assert_array_equal(found[on], np.isin(x[on], kept))
    assert np.all(jax.jit(stats.smallest_with_mean)(x, on & False, 0.0))


def test_a_batch_veto_without_log_probs_is_refused():
  objective = lib.build(config(batch_veto=dict(it=dict(fn="m2po"))))
  with pytest.raises(ValueError, match="need the policy's log-probs of the whole batch"):
    jax.eval_shape(lib.prepare, objective, random_batch(0)[0])
