"""How a batch is cut, ordered or padded changes nothing: for recipes and every list's function.

Nothing is jitted: single operations compile once for all objectives, programs would not.  Devices,
and the learner's own program over them: test_objective_devices.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from objective_toys import accumulate, configs_of_each, one_of_each, random_batch, recipe

from grpojax import objective as lib
from grpojax.objective.fields import EXTRA
from grpojax.types import Batch

OBJECTIVES = one_of_each()
TOLERANCE = dict(rtol=1e-9, atol=1e-12)


@pytest.fixture(autouse=True)
def float64():
  with jax.enable_x64(True):
    yield


def step(objective, batch, logp, entropy):
  """(loss, metrics), gradients by log π and entropy: one microbatch that is the whole batch."""
  return accumulate(objective, lib.prepare(objective, batch), logp, entropy, 1)


def made():
  batch, theta = random_batch(0)
  return jax.tree.map(jnp.asarray, (batch, theta["logp"], theta["entropy"]))


@cache
def whole(name):
  """What every other cut, order or padding has to give."""
  return step(OBJECTIVES[name], *made())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_microbatches_only_add_up(name):
  batch, logp, entropy = made()
  prepared = lib.prepare(OBJECTIVES[name], batch)
  cut = accumulate(OBJECTIVES[name], prepared, logp, entropy, 2)
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **TOLERANCE), cut, whole(name))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_order_of_prompts_and_of_completions_is_nothing(name):
  batch, logp, entropy = made()
  rng = np.random.default_rng(1)
  prompts, rows = rng.permutation(8), rng.permutation(4)
  shuffle = lambda tree: jax.tree.map(lambda x: x[prompts][:, rows], tree)
  loss, metrics, *grads = whole(name)
  again = step(OBJECTIVES[name], *shuffle((batch, logp, entropy)))
  expected = (loss, metrics, *shuffle(grads))
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **TOLERANCE), again, expected)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_is_behind_the_mask_is_nothing(name):
  batch, logp, entropy = made()
  masked = (batch.mask == 0) | ~batch.valid[..., None]
  garbage = np.resize([np.nan, np.inf, -np.inf, 1e30, -1e4, 7.0, 0.0], masked.shape)
  poison = lambda x, shift: jnp.where(masked, np.roll(garbage, shift), x)
  dirty = batch._replace(
    reward=jnp.where(batch.valid, batch.reward, np.nan),
    accuracy=jnp.where(batch.valid, batch.accuracy, np.inf),
    sampler_logp=poison(batch.sampler_logp, 1),
    old_logp=poison(batch.old_logp, 2),
    ref_logp=poison(batch.ref_logp, 3),
    entropy=poison(batch.entropy, 4),
  )
  again = step(OBJECTIVES[name], dirty, poison(logp, 5), poison(entropy, 6))
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **TOLERANCE), again, whole(name))
  for gradient in again[2:]:
    np.testing.assert_array_equal(np.asarray(gradient)[np.asarray(masked)], 0)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_wider_batch_and_filler_groups_are_nothing(name):
  """More padding columns, and groups that only fill the shape (valid False)."""
  batch, logp, entropy = made()
  T = batch.mask.shape[2]

  def widen(x):
    tail = [(0, 0)] * (x.ndim - 2)
    if x.ndim == 3 and x.shape[2] == T:
      tail = [(0, 3)]
    return jnp.pad(x, [(0, 2), (0, 0), *tail])

  loss, metrics, *grads = whole(name)
  again = step(OBJECTIVES[name], *jax.tree.map(widen, (batch, logp, entropy)))
  expected = (loss, metrics, *map(widen, grads))
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **TOLERANCE), again, expected)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_batch_without_a_token_has_no_loss_and_no_gradient(name):
  batch, logp, entropy = made()
  empty = batch._replace(mask=0 * batch.mask)
  loss, metrics, *grads = step(OBJECTIVES[name], empty, logp, entropy)
  assert float(loss) == 0
  jax.tree.map(lambda x: np.testing.assert_array_equal(x, 0), (metrics, grads))
  described = lib.describe(lib.prepare(OBJECTIVES[name], empty), empty.old_logp)
  assert all(np.isfinite(x) for x in described.values())


def test_a_group_never_learns_from_another():
  """Without rescaling, rewards of one prompt reach no other prompt's advantages."""
  batch, *_ = made()
  other = batch._replace(reward=batch.reward.at[3].add(jnp.array([3.0, -1, 0, 2])))
  one, two = (lib.prepare(OBJECTIVES["grpo"], b).advantage for b in (batch, other))
  np.testing.assert_array_equal(np.delete(one, 3, 0), np.delete(two, 3, 0))
  assert not np.array_equal(one[3], two[3])


def test_strictly_on_policy_the_ratio_is_one_with_a_gradient():
  """old_logp None: the loss is that of old_logp = log π_θ, and so is its gradient."""
  batch, logp, entropy = made()
  for name in ("grpo", "gspo", "gmpo", "grpo_s"):
    none = step(OBJECTIVES[name], batch._replace(old_logp=None), logp, entropy)
    same = step(OBJECTIVES[name], batch._replace(old_logp=logp), logp, entropy)
    np.testing.assert_allclose(none[2], same[2], **TOLERANCE)
    assert np.abs(none[2]).max() > 0
    assert float(same[1]["clip_ratio/region_mean"]) == float(none[1]["ppo_kl"]) == 0


@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_needs_pi_old_before_the_update_is_known_and_all_else_never_sees_it(name):
  """While it is unknown, what stands in its place changes numbers of exactly those that need it."""
  batch, logp, entropy = made()
  later = batch._replace(old_logp=batch.sampler_logp, on_policy=jnp.ones_like(batch.valid))
  other = later._replace(old_logp=later.old_logp - 15, entropy=batch.entropy[::-1, ::-1])
  one, two = (jax.tree.leaves(step(OBJECTIVES[name], b, logp, entropy)) for b in (later, other))
  same = all(np.array_equal(x, y) for x, y in zip(one, two, strict=True))
  config = recipe("grpo")
  config.objective = configs_of_each()[name]
  assert same != lib.reads_old_policy(config, tuple(EXTRA))
  if same:  # also where it is unknown of some rows only, and NaN
    some = later.on_policy.at[:, 1].set(False)
    later = later._replace(on_policy=some, old_logp=jnp.where(some[..., None], jnp.nan, logp))
    got = step(OBJECTIVES[name], later, logp, entropy)
    expected = step(OBJECTIVES[name], batch._replace(old_logp=logp), logp, entropy)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **TOLERANCE), got, expected)


def test_overlong_rows_stay_in_the_constant_denominator_and_unscored_rows_do_not():
  T = 4
  batch = Batch(
    mask=jnp.ones((1, 4, T)),
    reward=jnp.array([[1.0, 0, 0, 1]]),
    accuracy=jnp.array([[1.0, 0, 0, 1]]),
    valid=jnp.array([[True, True, True, False]]),
    ended=jnp.array([[True, True, False, True]]),
  )
  config = dict(
    advantage=dict(fn="center"),
    rescale=dict(fn="identity"),
    ratio=dict(fn="token"),
    surrogate=dict(fn="linear"),
    aggregate=dict(fn="constant", budget=T),
    select=dict(finished=dict(fn="finished")),
  )
  kept = lib.prepare(lib.build(config), batch)
  np.testing.assert_allclose(kept.weight[0, :, 0], [1 / 12, 1 / 12, 0, 0])
  np.testing.assert_allclose(kept.advantage[0, :, 0], [2 / 3, -1 / 3, 0, 0])
  config["shape"] = dict(finished=dict(fn="finished_only"))
  dropped = lib.prepare(lib.build(config), batch)
  np.testing.assert_allclose(dropped.weight[0, :, 0], [1 / 12, 1 / 12, 0, 0])
  np.testing.assert_allclose(dropped.advantage[0, :, 0], [1 / 2, -1 / 2, 0, 0])
