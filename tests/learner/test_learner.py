"""The update: microbatches, devices, row order and padding change nothing; SFT is log-likelihood."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict
from objective_toys import RECIPES, random_batch, recipe

from grpojax import models
from grpojax import objective as objective_lib
from grpojax.learner import logprobs, packing, rows
from grpojax.learner import optimizer as optimizer_lib
from grpojax.learner.state import make_init
from grpojax.learner.update import make_old_logp, make_update
from grpojax.models import bands
from grpojax.recipes import base, dapo, grpo, gspo
from grpojax.runtime import sharding
from grpojax.train import supervised
from grpojax.types import Batch

slow = pytest.mark.slow
V, P, G, L, T = 30, 8, 4, 6, 10
IN_BANDS = 13  # as many responses as make a row long enough for models/bands.py
CONFIG = base.get_config("tiny")
MODEL = models.build(CONFIG.model, V)
LOGP = dict(response_budget=T, temperature=1.0, chunk=4)


def make_batch(seed=0):
  rng = np.random.default_rng(seed)
  length = rng.integers(1, T + 1, (P, G))
  accuracy = rng.integers(0, 2, (P, G)).astype(np.float32)
  prompt_length = np.repeat(rng.integers(1, L + 1, P)[:, None], G, axis=1)
  old = rng.normal(-3, 0.3, (P, G, T)).astype(np.float32)
  tokens = rng.integers(0, V, (P, G, L + T)).astype(np.int32)
  tokens[..., :L] = tokens[:, :1, :L]
  return Batch(
    mask=(np.arange(T)[None, None] < length[..., None]).astype(np.float32),
    reward=accuracy,
    accuracy=accuracy,
    valid=np.ones((P, G), bool),
    ended=length < T,
    sampler_logp=old,
    old_logp=old,
    entropy=np.ones((P, G, T), np.float32),
    tokens=tokens,
    prompt_length=prompt_length.astype(np.int32),
    length=length.astype(np.int32),
  )


def make_mesh(sizes):
  return sharding.make_mesh(ConfigDict(dict.fromkeys((*sharding.AXES, "slices"), 1) | sizes))


def packed(batch, shards, rows, sharing=0):
  """(batch with its places, how it is packed): `sharing` of the longest responses behind one prompt."""
  how = packing.PackSpec(T, shards, rows, L + max(1, sharing) * (T - 1), bool(sharing))
  place = packing.pack_sequences(batch.prompt_length, batch.length, how)
  return batch._replace(packing_index=place), how


def update_fn(mesh_sizes=None, microbatches=1, optimizer=None, how=None):
  """update and a state, on a mesh of all eight devices or on one."""
  mesh = make_mesh(mesh_sizes) if mesh_sizes else None
  model = models.build(CONFIG.model, V, mesh)
  schedule = optax.constant_schedule(1e-2)
  tx = optimizer or optimizer_lib.make_optimizer(CONFIG.optimizer, schedule, MODEL.axes)
  if how:
    told = dict(longest=(L, T - 1), temperature=1.0, chunk=4)
    layout = rows.packed_on(mesh or make_mesh({}), model, how, **told)
  else:
    layout = rows.single(logprobs.make_logp(model, **LOGP), microbatches)
  update = make_update(layout, tx, schedule)
  init = make_init(MODEL, tx)
  if mesh is None:
    return jax.jit(update), jax.jit(init)(jax.random.key(0))
  where = optimizer_lib.state_shardings(MODEL, tx, mesh)
  everywhere = sharding.replicated(mesh)
  shardings = (where, everywhere, sharding.batch_sharding(mesh))
  jitted = jax.jit(update, in_shardings=shardings, out_shardings=(where, everywhere))
  return jitted, jax.jit(init, out_shardings=where)(jax.random.key(0))


def gradient_of(recipe, batch, **kwargs):
  """(gradients, loss) through an optimiser that returns the gradient as its update."""
  update, state = update_fn(optimizer=optax.identity(), **kwargs)
  objective = objective_lib.build(recipe.get_config("tiny").objective)
  after, metrics = update(state, objective, batch)
  grads = jax.tree.map(lambda a, b: np.asarray(a) - np.asarray(b), after.params, state.params)
  return grads, float(metrics["loss"])


def assert_same(a, b, tol=2e-6):
  scale = max(float(np.abs(x).max()) for x in jax.tree.leaves(a[0]))
  assert scale > 1e-4  # a zero gradient would agree with anything
  for x, y in zip(jax.tree.leaves(a[0]), jax.tree.leaves(b[0]), strict=True):
    np.testing.assert_allclose(x, y, atol=tol * max(scale, 1))
  assert a[1] == pytest.approx(b[1], abs=tol)


@functools.cache
def plain_update():
  return update_fn()


@functools.cache
def plain(recipe):
  """The gradient of one row after the other, in one piece, on one device."""
  return gradient_of(recipe, make_batch())


@pytest.mark.parametrize(("recipe", "microbatches"), [(dapo, 8)])
def test_microbatches_change_nothing(recipe, microbatches):
  """All numbers of microbatches, for all recipes, but without the model: test_objective_invariances."""
  batch = make_batch()
  assert_same(plain(recipe), gradient_of(recipe, batch, microbatches=microbatches))


@pytest.mark.parametrize(
  ("sizes", "rows", "sharing"),
  [
    pytest.param(None, 1, 0, marks=slow),
    pytest.param(None, 5, 0, marks=slow),
    pytest.param(None, P * G, 0, marks=slow),
    pytest.param(dict(fsdp=2, tensor=2), 4, 0, marks=slow),
    pytest.param(dict(data=2, context=4), 3, 0, marks=slow),
    pytest.param(None, 2, 1, marks=slow),
    pytest.param(None, 3, 2, marks=slow),
    pytest.param(None, P, 4, marks=slow),
    pytest.param(dict(fsdp=2, tensor=2), 2, 4, marks=slow),
    (dict(data=2, context=4), 2, 3),
    (dict(data=2), 2, 3),  # as any with `data` alone: devices add up alone, each as often as it needs
    pytest.param(dict(data=4), 1, 0, marks=slow),
    pytest.param(dict(data=8), 1, 2, marks=slow),
    (None, 1, IN_BANDS),
    pytest.param(dict(fsdp=2, tensor=2), 2, IN_BANDS, marks=slow),
    pytest.param(dict(data=2, context=4), 2, IN_BANDS, marks=slow),
    pytest.param(dict(data=2, context=4), 3, IN_BANDS, marks=slow),  # whose columns are cut
    pytest.param(dict(data=2), 1, IN_BANDS, marks=slow),
  ],
)
def test_packing_changes_nothing(sizes, rows, sharing):
  """Whatever the rows of a piece, prompts shared or not, on any devices.

  All recipes, without the model: test_objective_devices.
  """
  shards = sharding.batch_shards(make_mesh(sizes)) if sizes else 1
  batch, how = packed(make_batch(), shards, rows, sharing)
  if sizes:
    batch = sharding.to_device(make_mesh(sizes), batch)
  assert_same(plain(gspo), gradient_of(gspo, batch, mesh_sizes=sizes, how=how), tol=1e-6)


def test_devices_that_have_the_whole_policy_talk_to_each_other_once_an_update():
  """What all devices have found is summed behind the loop over microbatches, in none of its turns."""
  batch, how = packed(make_batch(), 2, 1, 2)
  batch = sharding.to_device(make_mesh(dict(data=2)), batch)
  update, state = update_fn(dict(data=2), how=how)
  objective = objective_lib.build(gspo.get_config("tiny").objective)
  text = update.lower(state, objective, batch).compile().as_text()
  sums = re.findall(r'= .* all-reduce\(.*op_name="([^"]*)"', text)
  assert sums and not [name for name in sums if "/while/" in name]


@slow
@pytest.mark.parametrize("sharing", [3, IN_BANDS])
def test_shared_prompts_of_models_whose_layers_differ(sharing):
  """Windows that end inside the prompt, inside the response and nowhere; rotary tables; soft-caps."""
  ropes = models.spec.Rope(1e4), models.spec.Rope(1e2)
  spec = dataclasses.replace(
    MODEL.spec, num_hidden_layers=3, windows=(4, T + 2, 0), ropes=ropes, rope_of=(0, 1, 0),
    attention_softcap=2.0, logit_softcap=3.0,
  )  # fmt: skip
  model, (batch, how) = models.from_spec(spec), packed(make_batch(), 1, 3, sharing)
  assert (bands.cut(how.columns, L, T - 1) is None) == (sharing == 3)
  params = model.init(jax.random.key(1))
  alone = logprobs.make_logp(model, response_budget=T, temperature=0.7, chunk=4)
  expected = jax.jit(alone)(params, batch.tokens, batch.prompt_length)
  told = dict(longest=(L, T - 1), temperature=0.7, chunk=4)
  in_rows = rows.packed(logprobs.make_packed_logp(model, **told), how)
  inputs = batch.tokens, batch.prompt_length, None, None, batch.packing_index
  got = jax.jit(in_rows.logp)(params, *inputs)
  for x, y in zip(expected[:2], got[:2], strict=True):
    np.testing.assert_allclose(x * batch.mask, y * batch.mask, atol=2e-6)


@pytest.mark.slow
def test_padding_of_an_update_is_counted_in_its_own_columns():
  """By hand: 2 prompts of 2 and 6 tokens, 2 responses each; in single rows, in packed ones of 24 columns."""
  batch = jax.tree.map(lambda x: x[:2, :2], make_batch())
  length = np.array([[1, 10], [4, 0]])  # without a token, one column is read
  mask = (np.arange(T)[None, None] < length[..., None]).astype(np.float32)
  batch = batch._replace(mask=mask, length=np.int32(length), prompt_length=np.int32([[2, 2], [6, 6]]))
  objective = objective_lib.build(gspo.get_config("tiny").objective)
  update, state = plain_update()
  alone = float(update(state, objective, batch)[1]["update/padding"])
  batch, how = packed(batch, 1, 1, sharing=2)
  update, state = update_fn(how=how)
  together = float(update(state, objective, batch)[1]["update/padding"])
  assert alone == pytest.approx(1 - (2 + 11 + 9 + 6) / (4 * 15), abs=1e-6)
  assert together == pytest.approx(1 - ((2 + 9) + (6 + 3)) / 24, abs=1e-6)


def test_as_many_responses_share_a_prompt_as_save_products():
  """All where matrices cost most; one, where attention does; kernels share where their mask has room."""
  config = base.get_config("mini")
  config.data.prompt_budget = config.rollout.max_tokens = 64
  mesh = make_mesh({})
  model = lambda **sizes: models.from_spec(dataclasses.replace(MODEL.spec, **sizes))
  width = lambda **sizes: rows.pack_spec(config, model(**sizes), mesh).columns
  assert width(hidden_size=512, intermediate_size=1536) == 64 + 8 * 63
  config.data.prompt_budget = config.rollout.max_tokens = 4096
  assert width() == 2 * 4096 - 1
  of_kernel = lambda name: rows.pack_spec(config, model(**large)._replace(attention=name), mesh)
  large = dict(hidden_size=2048, intermediate_size=6144, num_attention_heads=4)
  assert of_kernel("splash")[3:] == (2 * 4096 - 1, True)  # three responses, if they are half as long
  config.data.prompt_budget = config.rollout.max_tokens = 512
  assert of_kernel("splash")[3:] == of_kernel("cudnn")[3:] == (512 + 8 * 511, True)
  config.rollout.max_tokens = 8192
  assert of_kernel("splash")[3:] == (512 + 8191, False) == of_kernel("cudnn")[3:]


def test_log_probs_of_packed_sequences_are_those_of_a_row_each():
  (batch, how), params = packed(make_batch(), 2, 3, sharing=2), MODEL.init(jax.random.key(1))
  seen = params, batch.tokens, batch.prompt_length, None, None, batch.packing_index
  in_rows = rows.packed(logprobs.make_packed_logp(MODEL, temperature=0.7, chunk=4), how)
  alone = rows.single(logprobs.make_logp(MODEL, response_budget=T, temperature=0.7, chunk=4))
  got = jax.jit(make_old_logp(in_rows, False))(*seen)
  expected = jax.jit(make_old_logp(alone, False))(*seen)
  for x, y in zip(got[:2], expected[:2], strict=True):
    np.testing.assert_allclose(x * batch.mask, y * batch.mask, atol=2e-6)


@pytest.mark.parametrize("layout", ["packed", "packed on devices", "microbatches"])
def test_a_policy_is_traced_once_a_program(layout, monkeypatch):
  """Python's part of compiling: the pieces of a batch have one program, whose sums have its shapes."""
  traced, name = [], "response_logprobs" if layout == "microbatches" else "packed_logprobs"
  logp = getattr(logprobs, name)
  monkeypatch.setattr(logprobs, name, lambda *args, **kwargs: traced.append(1) or logp(*args, **kwargs))
  sizes = dict(data=2) if layout == "packed on devices" else None
  batch, how = make_batch(), dict(microbatches=2)
  if layout != "microbatches":
    batch, spec = packed(batch, 2 if sizes else 1, 2, 3)
    how = dict(mesh_sizes=sizes, how=spec)
  update, state = update_fn(**how)
  update.trace(state, objective_lib.build(gspo.get_config("tiny").objective), batch)
  assert len(traced) == 1
  if layout == "packed":
    in_rows = rows.packed(logprobs.make_packed_logp(MODEL, temperature=0.7, chunk=4), spec)
    seen = state.params, batch.tokens, batch.prompt_length, None, None, batch.packing_index
    jax.jit(make_old_logp(in_rows, False)).trace(*seen)
    assert len(traced) == 2


@slow
def test_a_packed_update_needs_no_more_memory_than_one_of_as_many_rows():
  """Compiled; also that it computes for all of the worst case, in the one program."""

  def bytes_of(batch, **kwargs):
    update, state = update_fn(**kwargs)
    objective = objective_lib.build(gspo.get_config("tiny").objective)
    memory = update.lower(state, objective, batch).compile().memory_analysis()
    return memory.temp_size_in_bytes + memory.argument_size_in_bytes

  batch, how = packed(make_batch(), 1, 8)
  assert bytes_of(batch, how=how) < 1.05 * bytes_of(make_batch(), microbatches=P * G // 8)


@pytest.mark.parametrize(
  "sizes",
  [
    dict(data=2, fsdp=2, tensor=2),
    pytest.param(dict(data=8), marks=slow),
    pytest.param(dict(fsdp=-1, tensor=4), marks=slow),
    pytest.param(dict(tensor=2, context=4), marks=slow),
  ],
)
def test_devices_and_layout_change_nothing(sizes):
  batch = make_batch()
  mesh = make_mesh(sizes)
  on_mesh = gradient_of(dapo, sharding.to_device(mesh, batch), mesh_sizes=sizes)
  assert_same(plain(dapo), on_mesh)


@pytest.mark.parametrize("rows", [P * G, 6])
def test_along_context_rows_are_dealt_out_if_they_can_be_and_columns_are_cut_else(rows):
  """Scores and logits, at least: each device has an eighth of the rows, or half and a quarter of their
  queries, and of a chunk's columns."""
  mesh, S, dealt = make_mesh(dict(data=2, context=4)), L + T - 1, rows == P * G
  model = models.build(CONFIG.model, V, mesh)
  logp = logprobs.make_logp(model, **LOGP)
  seen = jax.ShapeDtypeStruct((rows, 1, L + T), jnp.int32), jax.ShapeDtypeStruct((rows, 1), jnp.int32)
  where = sharding.batch_sharding(mesh)
  text = jax.jit(logp, in_shardings=(None, where, where)).lower(model.shapes, *seen).compile().as_text()
  of_row = f"[{rows // (8 if dealt else 2)},"
  logits = [size for size in (1, 4) if f"{of_row}{size},{V}]" in text]
  assert logits == ([4] if dealt else [1])
  cut = f",{-(-S // 4)},{S + 1}]" in text  # scores, of 15 + 1 columns
  assert cut == (not dealt) and f",{S + 1},{S + 1}]" not in text


@pytest.mark.parametrize("embed", ["fsdp", "fsdp,context"])
def test_what_tokens_find_in_the_embedding_travels_and_not_the_table_nor_its_gradient(embed):
  mesh = make_mesh(dict(fsdp=4, context=2))
  rules = sharding.RULES | dict(embed=embed)
  model = models.build(CONFIG.model, V, mesh, rules)
  where = sharding.param_shardings(mesh, model.axes, model.shapes, rules)
  D = CONFIG.model.hidden_size

  def loss(table, params, tokens):
    decoder = model.bind(params | {"embedding": table})
    return decoder.forward(tokens, jnp.ones_like(tokens))[0].sum()

  how = dict(in_shardings=(where["embedding"], where, sharding.batch_sharding(mesh)))
  how["out_shardings"] = where["embedding"]
  shapes = model.shapes["embedding"], model.shapes, jax.ShapeDtypeStruct((P * G, L), jnp.int32)
  text = jax.jit(jax.grad(loss), **how).lower(*shapes).compile().as_text()
  kinds = r" (all-|collective|reduce-scatter)[\w-]*\("
  travels = [line for line in text.splitlines() if re.search(kinds, line)]
  assert any("all-to-all" in line for line in travels)
  assert not [line for line in travels if f"[{V},{D}]" in line]


def test_parameters_moments_and_batch_are_really_cut():
  sizes = dict(data=2, fsdp=2, tensor=2)
  _, state = update_fn(sizes)
  q, moment = state.params["layers"]["gate"], state.opt_state[1][0].mu["layers"]["gate"]
  for x in (q, moment):
    assert x.addressable_shards[0].data.size == x.size // 4, x.sharding
  mesh = make_mesh(sizes)
  tokens = sharding.to_device(mesh, make_batch().tokens)
  assert tokens.addressable_shards[0].data.shape[0] == P // 4


def test_a_dimension_that_does_not_divide_is_replicated():
  mesh = make_mesh(dict(data=2, tensor=4))
  where = sharding.param_shardings(mesh, MODEL.axes, MODEL.shapes)
  assert where["layers"]["k"].spec[2] is None  # two kv heads over four shards
  assert where["layers"]["q"].spec[2] == "tensor"


@slow
def test_prompt_order_and_padding_content_change_nothing():
  batch, whole = make_batch(), plain(gspo)
  order = np.random.default_rng(3).permutation(P)
  assert_same(whole, gradient_of(gspo, jax.tree.map(lambda x: x[order], batch)))
  column = np.arange(L + T)[None, None]
  length = batch.mask.sum(-1, keepdims=True)
  behind = (column >= L + length) | (column < L - batch.prompt_length[..., None])
  garbage = batch._replace(
    tokens=np.where(behind, 7, batch.tokens),
    old_logp=np.where(batch.mask > 0, batch.old_logp, np.nan),
    sampler_logp=np.where(batch.mask > 0, batch.sampler_logp, np.inf),
  )
  assert_same(whole, gradient_of(gspo, garbage))


def test_the_first_update_of_a_step_needs_no_pass_before_it():
  """Two updates after one rollout, on two devices: the same parameters and metrics with a pass less."""
  mesh = make_mesh(dict(data=2))
  dealt = [sharding.to_device(mesh, make_batch(seed)) for seed in (0, 1)]
  dealt = [batch._replace(old_logp=None, entropy=None) for batch in dealt]
  update, state = update_fn(dict(data=2))
  objective = objective_lib.build(grpo.get_config("tiny").objective)
  logp = jax.jit(
    make_old_logp(rows.single(logprobs.make_logp(MODEL, **LOGP)), False),
    out_shardings=sharding.batch_sharding(mesh),
  )
  passes, reference = [], jax.tree.map(lambda x: 1.1 * x, state.params)

  def step(first_pass):
    counted = lambda params, *args: (passes.append(params is reference), logp(params, *args))[1]
    after, seen = state, []
    for batch in logprobs.add_logprobs(counted, state.params, reference, dealt, first_pass):
      after, metrics = update(after, objective, batch)
      seen.append(metrics)
    return after, seen

  (with_pass, expected), both = step(True), len(passes)
  (without, got), one = step(False), len(passes) - both
  assert (both - passes[:both].count(True), one - passes[both:].count(True)) == (2, 1)
  for a, b in zip(jax.tree.leaves(without.params), jax.tree.leaves(with_pass.params), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5)  # Adam steps 1e-2 far, also by gradients that are rounding
  for a, b in zip(got, expected, strict=True):
    assert a.keys() == b.keys()
    for name in a:
      assert float(a[name]) == pytest.approx(float(b[name]), rel=2e-5, abs=2e-6), name
  assert float(got[0]["sampling/sampling_logp_difference/max"]) > 0.1  # of random numbers


def test_a_pass_over_the_first_batch_is_made_for_what_reads_it_and_for_nothing_else():
  """By recipe, as read in their papers; and what a run keeps of the pass beside the loss."""
  needs = {name for name in RECIPES if logprobs.needs_old_logprobs(recipe(name))}
  assert needs == {"gtpo", "grpo_s", "quantized", "reinforce_pp", "spo", "moe"}
  assert not logprobs.needs_old_logprobs(recipe("grpo"))
  for key, value in [("staleness", 1), ("routing_replay", "R2"), ("load_balance", 1e-3)]:
    config = recipe("grpo")
    config[key] = value
    assert logprobs.needs_old_logprobs(config), key
  config = recipe("grpo")
  config.staleness, config.objective.shape.bypass = 1, dict(fn="bypass")
  assert not logprobs.needs_old_logprobs(config)
  config.objective.shape.a_kl = dict(fn="kl_k1", beta=0.1)  # before it, of the policy that sampled
  config.reference = "init"
  assert logprobs.needs_old_logprobs(config)
  config = recipe("moe")
  config.update(load_balance=0.0, routing_replay="R3")
  assert not logprobs.needs_old_logprobs(config)


def test_supervised_objective_is_the_mean_negative_log_likelihood():
  batch = make_batch()
  ones = np.ones((P, G), np.float32)
  batch = batch._replace(reward=ones, accuracy=ones, old_logp=None, sampler_logp=None, entropy=None)
  update, state = plain_update()
  _, metrics = update(state, objective_lib.build(supervised.OBJECTIVE), batch)
  rows, mask = np.asarray(batch.tokens).reshape(P * G, L + T), np.asarray(batch.mask).reshape(P * G, T)

  @jax.jit
  def log_softmax(params):
    decoder = MODEL.bind(params)
    hidden = decoder(rows, L - np.asarray(batch.prompt_length).reshape(-1))
    return jax.nn.log_softmax(hidden @ decoder.unembedding().T)

  logp = np.asarray(log_softmax(state.params))
  chosen = np.take_along_axis(logp[:, L - 1 : -1], rows[:, L:, None], -1)[..., 0]
  assert float(metrics["loss"]) == pytest.approx(-(chosen * mask).sum() / mask.sum(), rel=1e-5)


def other_numbers(config, k):
  """The same choices with other numbers; words and switches stay."""
  if isinstance(config, dict):
    return {key: other_numbers(value, k) for key, value in config.items()}
  number = isinstance(config, int | float) and not isinstance(config, bool)
  return type(config)(config * (1 + 0.1 * k) + k) if number else config


def other_batches():
  """Lengths, masks, unscored rows; no group mixed, all of them; nothing valid at all."""
  for seed in range(4):
    full, _ = random_batch(seed, P, G, T)
    full = full._replace(tokens=make_batch(seed).tokens, prompt_length=make_batch(seed).prompt_length)
    full = jax.tree.map(lambda x: x.astype(np.float32) if x.dtype == np.float64 else x, full)
    row = np.broadcast_to(np.arange(G), (P, G))
    yield full._replace(
      accuracy=np.float32([full.accuracy, row * 0, row % 2, row % 2][seed]),
      valid=[full.valid, full.valid, full.valid, np.zeros((P, G), bool)][seed],
    )


OFTEN = ("gspo", "dapo", "gtpo")


@pytest.mark.parametrize(
  "name", [pytest.param(name, marks=[] if name in OFTEN else slow) for name in RECIPES]
)
def test_other_numbers_lengths_masks_and_groups_are_the_same_program(name):
  """Traced once for all of it: nothing that may change between steps, or in a sweep, is a constant."""
  update, state = plain_update()
  traced = []
  counted = jax.jit(lambda *args: (traced.append(1), update(*args))[1])
  config = recipe(name).objective.to_dict()
  for k, batch in enumerate(other_batches()):
    counted.trace(state, objective_lib.build(other_numbers(config, k)), batch)
  assert len(traced) == 1


@pytest.mark.parametrize(("warmup", "rates"), [(0, [2, 2, 2]), (2, [0, 1, 2])])
def test_warm_up_ends_at_the_learning_rate_and_may_be_left_out(warmup, rates):
  schedule = optimizer_lib.warmup_constant(ConfigDict(dict(learning_rate=2.0, warmup_steps=warmup)))
  assert [float(schedule(step)) for step in range(3)] == rates


def test_decay_shrinks_matrices_and_leaves_norms_and_biases_alone():
  """Stacked norms are [layers, D] and stacked biases [layers, N, H]: no shape tells them apart."""
  config = base.get_config("tiny").optimizer
  config.weight_decay = 0.5
  tx = optimizer_lib.make_optimizer(config, optax.constant_schedule(0.1), MODEL.axes)
  params = jax.tree.map(lambda s: jnp.ones(s.shape), MODEL.shapes)
  updates, _ = jax.jit(lambda p: tx.update(jax.tree.map(jnp.zeros_like, p), tx.init(p), p))(params)
  for path, update in jax.tree.leaves_with_path(updates):
    decayed = path[-1].key in ("embedding", "q", "k", "v", "o", "gate", "up", "down")
    np.testing.assert_allclose(update, -0.05 if decayed else 0, rtol=1e-6, err_msg=str(path))


@slow
def test_the_policy_that_is_rewarded_becomes_likelier():
  """Forty updates on one batch, against the sign of the whole chain."""
  update, state = plain_update()
  objective = objective_lib.build(gspo.get_config("tiny").objective)
  logp = jax.jit(logprobs.make_logp(MODEL, **LOGP))
  batch = make_batch()
  mean = lambda lp, on: float((lp * batch.mask * on[..., None]).sum() / (batch.mask * on[..., None]).sum())

  def gap():
    lp, *_ = logp(state.params, batch.tokens, batch.prompt_length)
    return mean(lp, batch.reward) - mean(lp, 1 - batch.reward)

  before = gap()
  for _ in range(40):
    old, *_ = logp(state.params, batch.tokens, batch.prompt_length)
    state, metrics = update(state, objective, batch._replace(old_logp=old))
  assert int(state.updates) == 40 and np.isfinite(metrics["grad_norm"])
  assert gap() > before + 0.5
