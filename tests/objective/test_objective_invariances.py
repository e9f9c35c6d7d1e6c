"""How a batch is cut, ordered or padded changes nothing: for recipes and every list's function.

All variants of a batch are as wide as the widest, and go through one program of an objective together.
Devices, and the learner's own program over them: test_objective_devices.
"""

from functools import cache, partial

import jax
import numpy as np
import pytest
from objective_toys import RECIPES, accumulate, configs_of_each, one_of_each, random_batch, recipe

from grpojax import objective as lib
from grpojax.objective.fields import EXTRA
from grpojax.types import Batch

OBJECTIVES = one_of_each()
CONFIGS = configs_of_each()
TOLERANCE = dict(rtol=1e-9, atol=1e-12)
P, G, T = 8, 4, 6
RNG = np.random.default_rng(1)
PROMPTS, ROWS = RNG.permutation(P), RNG.permutation(G)


@pytest.fixture(autouse=True)
def float64():
  with jax.enable_x64(True):
    yield


def made():
  """(batch, logp, entropy), numpy float64; log π_old is known."""
  batch, theta = random_batch(0, P, G, T)
  return batch._replace(on_policy=np.zeros_like(batch.valid)), theta["logp"], theta["entropy"]


def shuffled(tree):
  return jax.tree.map(lambda x: x[PROMPTS][:, ROWS], tree)


def widened(tree):
  """More padding columns, and groups that only fill the shape (valid False)."""
  tail = lambda x: [(0, 3)] if x.ndim == 3 and x.shape[2] == T else [(0, 0)] * (x.ndim - 2)
  return jax.tree.map(lambda x: np.pad(x, [(0, 2), (0, 0), *tail(x)]), tree)


def masked(batch):
  return (batch.mask == 0) | ~batch.valid[..., None]


def garbled(batch, logp, entropy):
  """Behind the mask: whatever a float can be."""
  garbage = np.resize([np.nan, np.inf, -np.inf, 1e30, -1e4, 7.0, 0.0], batch.mask.shape)
  poison = lambda x, shift: np.where(masked(batch), np.roll(garbage, shift), x)
  dirty = batch._replace(
    reward=np.where(batch.valid, batch.reward, np.nan),
    accuracy=np.where(batch.valid, batch.accuracy, np.inf),
    sampler_logp=poison(batch.sampler_logp, 1),
    old_logp=poison(batch.old_logp, 2),
    ref_logp=poison(batch.ref_logp, 3),
    entropy=poison(batch.entropy, 4),
    teacher_logp=poison(batch.teacher_logp, 7),
    divergence=poison(batch.divergence, 8),
  )
  return dirty, poison(logp, 5), poison(entropy, 6)


def variants() -> dict:
  """By name: (batch, logp, entropy) [P, G, T]."""
  batch, logp, entropy = made()
  unknown = batch._replace(old_logp=batch.sampler_logp, on_policy=np.ones_like(batch.valid))
  other = unknown._replace(old_logp=unknown.old_logp - 15, entropy=batch.entropy[::-1, ::-1])
  some = unknown.on_policy.copy()
  some[:, 1] = False
  partly = unknown._replace(on_policy=some, old_logp=np.where(some[..., None], np.nan, logp))
  return dict(
    whole=made(),
    shuffled=shuffled(made()),
    garbled=garbled(*made()),
    empty=(batch._replace(mask=0 * batch.mask), logp, entropy),
    unknown=(unknown, logp, entropy),
    unknown_other=(other, logp, entropy),
    partly_unknown=(partly, logp, entropy),
    equal=(batch._replace(old_logp=logp), logp, entropy),
  )


@cache
def stacked():
  """All variants as one tree of arrays [V, P + 2, G, T + 3]."""
  return jax.tree.map(lambda *x: np.stack(x), *map(widened, variants().values()))


@jax.jit
def evaluate(objective, narrow, wide):
  """(loss, metrics), gradients by log π and entropy: of a batch in two microbatches, and of all variants.

  And what `describe` says of the variants.
  """
  one_piece = lambda prepared, logp, entropy: accumulate(objective, prepared, logp, entropy, 1)
  batch, *rest = narrow
  prepare = partial(lib.prepare, objective)
  halves = accumulate(objective, prepare(batch, rest[0]), *rest, 2)
  batch, *rest = wide
  prepared = jax.vmap(prepare)(batch, rest[0])
  old = lambda x, logp: logp if x.old_logp is None else x.old_logp  # None: a share of the way to logp
  described = jax.vmap(lambda x, logp: lib.describe(x, old(x, logp)))(prepared, rest[0])
  return halves, jax.vmap(one_piece)(prepared, *rest), described


def tiers():
  """All recipes by default; GRPO with each function of the lists in the slow tier."""
  return [pytest.param(name, marks=[] if name in RECIPES else pytest.mark.slow) for name in OBJECTIVES]


@pytest.fixture(scope="module", params=tiers())
def name(request):
  return request.param


@pytest.fixture(scope="module")
def found(name) -> dict:
  """By variant: (loss, metrics), gradients by log π and entropy; `described` is that of `empty`."""
  with jax.enable_x64(True):
    halves, cut, described = jax.tree.map(np.asarray, evaluate(OBJECTIVES[name], made(), stacked()))
  number = {variant: i for i, variant in enumerate(variants())}
  each = {variant: jax.tree.map(lambda x, i=i: x[i], cut) for variant, i in number.items()}
  empty = {key: x[number["empty"]] for key, x in described.items()}
  return each | dict(halves=halves, described=empty)


def assert_close(got, expected):
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **TOLERANCE), got, expected)


def test_microbatches_only_add_up_and_a_wider_batch_and_filler_groups_are_nothing(found):
  """Two microbatches of the batch as it is, and the wider one in one piece."""
  loss, metrics, *grads = found["halves"]
  assert_close(found["whole"], (loss, metrics, *map(widened, grads)))


def test_the_order_of_prompts_and_of_completions_is_nothing(found):
  loss, metrics, *grads = found["whole"]
  expected = (loss, metrics, *(widened(shuffled(x[:P, :, :T])) for x in grads))
  assert_close(found["shuffled"], expected)


def test_what_is_behind_the_mask_is_nothing(found):
  assert_close(found["garbled"], found["whole"])
  behind = masked(widened(made()[0]))
  for gradient in found["garbled"][2:]:
    np.testing.assert_array_equal(gradient[behind], 0)


def test_a_batch_without_a_token_has_no_loss_and_no_gradient(found):
  loss, metrics, *grads = found["empty"]
  assert float(loss) == 0
  jax.tree.map(lambda x: np.testing.assert_array_equal(x, 0), (metrics, grads))
  assert all(np.isfinite(x) for x in found["described"].values())


def test_what_needs_pi_old_before_the_update_is_known_and_all_else_never_sees_it(name, found):
  """While it is unknown, what stands in its place changes numbers of exactly those that need it."""
  one, two = (jax.tree.leaves(found[variant]) for variant in ("unknown", "unknown_other"))
  same = all(np.array_equal(x, y) for x, y in zip(one, two, strict=True))
  config = recipe("grpo")
  config.objective, config.teacher.path = CONFIGS[name], "a teacher's folder"
  config.teacher.divergence = "jsd"
  assert same != lib.reads_old_policy(config, tuple(EXTRA))
  if same:  # also where it is unknown of some rows only, and NaN
    assert_close(found["partly_unknown"], found["equal"])


prepare = jax.jit(lib.prepare)


def test_a_group_never_learns_from_another():
  """Without rescaling, rewards of one prompt reach no other prompt's advantages."""
  batch, *_ = made()
  reward = batch.reward.copy()
  reward[3] += [3.0, -1, 0, 2]
  other = batch._replace(reward=reward)
  one, two = (np.asarray(prepare(OBJECTIVES["grpo"], b).advantage) for b in (batch, other))
  np.testing.assert_array_equal(np.delete(one, 3, 0), np.delete(two, 3, 0))
  assert not np.array_equal(one[3], two[3])


@jax.jit
def step(objective, batch, logp, entropy):
  return accumulate(objective, lib.prepare(objective, batch, logp), logp, entropy, 1)


def test_strictly_on_policy_the_ratio_is_one_with_a_gradient():
  """old_logp None: the loss is that of old_logp = log π_θ, and so is its gradient."""
  batch, logp, entropy = made()
  batch = batch._replace(on_policy=None)
  for name in ("grpo", "gspo"):
    none = step(OBJECTIVES[name], batch._replace(old_logp=None), logp, entropy)
    same = step(OBJECTIVES[name], batch._replace(old_logp=logp), logp, entropy)
    np.testing.assert_allclose(none[2], same[2], **TOLERANCE)
    assert np.abs(none[2]).max() > 0
    assert float(same[1]["clip_ratio/region_mean"]) == float(none[1]["ppo_kl"]) == 0


def test_overlong_rows_stay_in_the_constant_denominator_and_unscored_rows_do_not():
  T = 4
  batch = Batch(
    mask=np.ones((1, 4, T)),
    reward=np.array([[1.0, 0, 0, 1]]),
    accuracy=np.array([[1.0, 0, 0, 1]]),
    valid=np.array([[True, True, True, False]]),
    ended=np.array([[True, True, False, True]]),
  )
  config = dict(
    advantage=dict(fn="center"),
    rescale=dict(fn="identity"),
    ratio=dict(fn="token"),
    surrogate=dict(fn="linear"),
    aggregate=dict(fn="constant", budget=T),
    select=dict(finished=dict(fn="finished")),
  )
  kept = prepare(lib.build(config), batch)
  np.testing.assert_allclose(kept.weight[0, :, 0], [1 / 12, 1 / 12, 0, 0])
  np.testing.assert_allclose(kept.advantage[0, :, 0], [2 / 3, -1 / 3, 0, 0])
  config["shape"] = dict(finished=dict(fn="finished_only"))
  dropped = prepare(lib.build(config), batch)
  np.testing.assert_allclose(dropped.weight[0, :, 0], [1 / 12, 1 / 12, 0, 0])
  np.testing.assert_allclose(dropped.advantage[0, :, 0], [1 / 2, -1 / 2, 0, 0])
