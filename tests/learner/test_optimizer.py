"""Every optimiser of the slot: optax's own numbers, downhill, the same on eight devices; what is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict
from objective_toys import recipe

from grpojax import models, train
from grpojax.config import check as config_lib
from grpojax.learner import optimizer, state
from grpojax.models import lora
from grpojax.recipes import base
from grpojax.runtime import metrics, sharding

MODEL = models.build(base.get_config("tiny").model, 30)
ADAPTERS = ConfigDict(dict(rank=2, alpha=4.0, modules="q|o|down", path=""))
ADAPTED = MODEL._replace(lora=lora.build(ADAPTERS, MODEL.spec, MODEL.axes, MODEL.shapes))
RATE, DECAY, CLIP = 0.01, 0.1, 0.7
each = pytest.mark.parametrize("fn", optimizer.RULES)
OFTEN = "adapters", "muon"  # of the four, Muon alone asks what shape the model gives a matrix
each_also_with_adapters = pytest.mark.parametrize(
  ("fn", "model"),
  [
    pytest.param(fn, model, id=f"{what}-{fn}", marks=[] if (what, fn) == OFTEN else pytest.mark.slow)
    for what, model in dict(all=MODEL, adapters=ADAPTED).items()
    for fn in optimizer.RULES
  ],
)


def section(fn, **changes):
  config = base.get_config("tiny").optimizer
  config.update(fn=fn, min_dim_size_to_factor=16, **changes)
  return config


def make(fn, axes=MODEL.axes, **changes):
  return optimizer.make_optimizer(section(fn, **changes), optax.constant_schedule(RATE), axes)


@functools.cache
def params_and_gradients():
  params = MODEL.init(jax.random.key(0))
  leaves, tree = jax.tree.flatten(params)
  random = lambda step: tree.unflatten(
    [jax.random.normal(jax.random.key(100 * step + i), x.shape) for i, x in enumerate(leaves)]
  )
  return params, [random(step) for step in range(1, 4)]


def matrices(params):
  decayed = ("embedding", "q", "k", "v", "o", "gate", "up", "down")
  return jax.tree.map_with_path(lambda path, _: path[-1].key in decayed, params)


def muon_by_hand():
  """The model's matrices as [in, out], written down one by one; layers are stacked in front."""
  of = optax.contrib.MuonDimensionNumbers
  into, back = of((1,), (2, 3)), of((1, 2), (3,))
  dims = dict(q=into, k=into, v=into, o=back, gate=of((1,), (2,)), up=of((1,), (2,)), down=of((1,), (2,)))
  named = jax.tree.map_with_path(lambda path, _: dims.get(path[-1].key, 0), MODEL.shapes)
  dimensions = jax.tree.map(lambda x: x or None, named, is_leaf=lambda x: isinstance(x, of))
  return optax.contrib.muon(1.0, adam_b2=0.95, muon_weight_dimension_numbers=dimensions)


OPTAX = {  # optax's own optimiser at a learning rate of 1
  "adamw": lambda: optax.adam(1.0, 0.9, 0.95),
  "muon": muon_by_hand,
  "adafactor": lambda: optax.adafactor(1.0, min_dim_size_to_factor=16, multiply_by_parameter_scale=False),
  "sgd": lambda: optax.sgd(1.0, momentum=0.95),
}


@each
def test_updates_are_those_of_optax_clipped_and_decayed(fn):
  params, gradients = jax.tree.map(np.asarray, params_and_gradients())
  tx, own = make(fn, weight_decay=DECAY, clip_norm=CLIP), OPTAX[fn]()
  opt_state, own_state, step = tx.init(params), own.init(params), jax.jit(tx.update)
  own_step, decayed = jax.jit(own.update), matrices(params)
  for grads in gradients:
    got, opt_state = step(grads, opt_state, params)
    norm = np.sqrt(sum(float((g**2).sum()) for g in jax.tree.leaves(grads)))
    expected, own_state = own_step(jax.tree.map(lambda g, n=norm: g * CLIP / n, grads), own_state, params)
    for path, x in jax.tree.leaves_with_path(got):
      at = lambda tree, path=path: functools.reduce(lambda t, key: t[key.key], path, tree)
      wanted = RATE * (at(expected) - DECAY * at(decayed) * at(params))
      np.testing.assert_allclose(x, wanted, rtol=1e-4, atol=1e-7, err_msg=str(path))
    params = jax.tree.map(np.add, params, got)


@each_also_with_adapters
def test_every_optimizer_goes_downhill_also_with_adapters(fn, model):
  """Making one token likelier everywhere."""
  schedule = optax.constant_schedule(0.5 if fn == "sgd" else RATE)
  tx = optimizer.make_optimizer(section(fn), schedule, model.trained.axes)
  frozen = MODEL.init(jax.random.key(0))
  start = lora.init(model.lora, model.spec, jax.random.key(1)) if model.lora else frozen
  tokens = jax.random.randint(jax.random.key(2), (4, 8), 0, 30)

  def loss(params):
    decoder = model.bind(frozen | params)
    hidden = decoder(tokens, jnp.zeros(4, jnp.int32))
    return -jax.nn.log_softmax(hidden @ decoder.unembedding().T)[..., 7].mean()

  @jax.jit
  def step(now):
    value, grads = jax.value_and_grad(loss)(now.params)
    updates, opt_state = tx.update(grads, now.opt_state, now.params)
    return now._replace(params=optax.apply_updates(now.params, updates), opt_state=opt_state), value

  now, values = state.create(start, tx), []
  for _ in range(12):
    now, value = step(now)
    values.append(float(value))
  assert values[-1] < values[0] - 0.02 and np.isfinite(values).all()


@each_also_with_adapters
def test_a_sharded_step_is_that_of_one_device_and_the_state_keeps_its_shardings(fn, model):
  sizes = dict.fromkeys((*sharding.AXES, "slices"), 1) | dict(data=2, fsdp=2, tensor=2)
  mesh = sharding.make_mesh(ConfigDict(sizes))
  tx = make(fn, model.trained.axes)
  where = optimizer.state_shardings(model, tx, mesh)
  shapes = jax.eval_shape(lambda p: state.create(p, tx), model.trained.shapes)  # as a checkpoint's layout is
  assert jax.tree.structure(where) == jax.tree.structure(shapes)
  for leaf, at in zip(jax.tree.leaves(shapes), jax.tree.leaves(where), strict=True):
    at.shard_shape(leaf.shape)  # raises where a dimension does not divide, or there is none
  leaves, tree = jax.tree.flatten(model.trained.shapes)
  params, grads = (
    tree.unflatten([jax.random.normal(jax.random.key(s + i), x.shape) for i, x in enumerate(leaves)])
    for s in (0, 50)
  )

  def step(now, grads):
    updates, opt_state = tx.update(grads, now.opt_state, now.params)
    return now._replace(params=optax.apply_updates(now.params, updates), opt_state=opt_state)

  whole = jax.jit(step)
  cut = jax.jit(step, in_shardings=(where, where.params), out_shardings=where)
  alone, sharded = state.create(params, tx), jax.device_put(state.create(params, tx), where)
  for _ in range(2):
    alone, sharded = whole(alone, grads), cut(sharded, jax.device_put(grads, where.params))
  for x, y in zip(jax.tree.leaves(sharded), jax.tree.leaves(alone), strict=True):
    np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("fn", ["muon", "adafactor", "sgd"])
def test_a_run_on_four_devices_resumes_bit_for_bit(fn, cache, tmp_path, quick_jobs):
  def start(steps, workdir):
    config = recipe("gspo")
    config.update(cache_dir=str(cache), verbose=False, steps=steps)
    config.optimizer.fn = fn
    if fn == "adafactor":
      config.optimizer.min_dim_size_to_factor = 16
    config.mesh.update(data=1, fsdp=2, tensor=2)
    config.eval.update(every=9, prompts=4)
    train.run(train.prepare(config, workdir))
    timed = ("time/", "tokens_per_second/", "memory/", "wall")
    records = [r for r in metrics.read(workdir) if r["kind"] == "train"]
    return [{k: v for k, v in r.items() if not k.startswith(timed)} for r in records]

  whole = start(2, tmp_path / "whole")
  start(1, tmp_path / "cut")
  assert start(2, tmp_path / "cut") == whole and whole[-1]["update/skipped"] == 0


def test_factored_moments_are_small_and_whole_on_every_device():
  mesh = sharding.make_mesh(ConfigDict(dict.fromkeys((*sharding.AXES, "slices"), 1) | dict(fsdp=8)))
  tx = make("adafactor")
  shapes, where = jax.eval_shape(tx.init, MODEL.shapes), optimizer.state_shardings(MODEL, tx, mesh).opt_state
  size = lambda tree: sum(x.size for x in jax.tree.leaves(tree))
  assert size(shapes) < 0.4 * size(MODEL.shapes)
  rows, of_rows = (tree[1][0][0].v_row["layers"]["gate"] for tree in (shapes, where))
  assert rows.shape == (2, 32) and of_rows.is_fully_replicated


@pytest.mark.parametrize("fn", ["adamw", "muon", "sgd"])
def test_moments_in_bfloat16_are_moments_only(fn):
  opt_state = make(fn, state_dtype="bfloat16").init(MODEL.init(jax.random.key(0)))
  kinds = {}
  for path, x in jax.tree.leaves_with_path(opt_state):
    kinds.setdefault(str(x.dtype), set()).add(isinstance(path[-1], jax.tree_util.DictKey))
  assert kinds["bfloat16"] == {True} and kinds.keys() <= {"bfloat16", "int32", "float32"}
  assert kinds.get("float32", {False}) == {False}  # Muon's coefficients


def test_bfloat16_gradients_move_adafactors_means_in_float32():
  params = {"q": jnp.ones((4, 4), jnp.bfloat16)}
  tx = optimizer.make_optimizer(section("adafactor"), optax.constant_schedule(RATE), None)
  opt_state = tx.init(params)
  _, opt_state = tx.update(params, opt_state, params)
  assert opt_state[1][0][0].v["q"].dtype == jnp.float32


@pytest.mark.parametrize(
  ("changes", "sentence"),
  [
    (dict(fn="lion"), r"config\.optimizer\.fn = 'lion'; it is 'adamw' or 'muon' or 'adafactor' or 'sgd'\."),
    (dict(momentum=0.5), r"config\.optimizer\.momentum = 0\.5: adamw has no momentum; it takes b1, b2\."),
    (dict(fn="sgd", b2=0.9), r"config\.optimizer\.b2 = 0\.9: sgd has no b2; it takes momentum\."),
    (dict(fn="muon", decay_rate=0.7), r"config\.optimizer\.decay_rate = 0\.7: muon has no decay_rate"),
    (dict(fn="adafactor", state_dtype="bfloat16"), r"set config\.optimizer\.state_dtype = 'float32'"),
    (dict(fn="sgd", momentum=1.5), r"config\.optimizer\.momentum = 1\.5"),
  ],
)
def test_a_wrong_name_or_a_knob_of_another_optimizer_is_refused(changes, sentence):
  config = base.get_config("tiny")
  config.optimizer.update(changes)
  with pytest.raises(ValueError, match=sentence):
    config_lib.check(config, 1)


@each
def test_every_optimizer_is_legal_with_its_defaults(fn):
  config = base.get_config("tiny")
  config.optimizer.fn = fn
  config_lib.check(config, 1)


def test_an_unknown_key_is_refused_with_the_keys_there_are():
  config = base.get_config("tiny")
  with config.unlocked():
    config.optimizer.nesterov = True
  with pytest.raises(ValueError, match=r"config\.optimizer has no 'nesterov'; it takes .*fn, learning_rate"):
    config_lib.check(config, 1)
