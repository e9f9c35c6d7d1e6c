"""The continuous sampler against the plain one: same request, same tokens, whatever the slots."""

import functools
import heapq
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh
from model_folders import loaded, mesh

from grpojax import models
from grpojax.learner.logprobs import response_logprobs
from grpojax.recipes import base
from grpojax.rollout import sampler
from grpojax.runtime import sharding

P, G, L, T, V = 8, 3, 10, 12, 40
ALL = 10**6  # steps
EOS = ((3, 5), tuple(range(12)))  # most responses use up the budget; few do


@functools.cache
def tiny():
  """A layer of Qwen2, sharper than random: tokens depend on the prompt and not on the draw alone."""
  config = base.get_config("tiny").model
  config.num_hidden_layers = 1
  model = models.build(config, V)
  params = model.init(jax.random.key(0))
  return model, params | {"embedding": params["embedding"] * 10}


@functools.cache
def programs(family="tiny", eos=EOS[0], budget=T, **options):
  """The plain sampler without `slots`, else the continuous one, which also returns Counters."""
  model, params = loaded(family)[:2] if family != "tiny" else tiny()
  build = sampler.continuous.build if "slots" in options else sampler.static_batch.build
  setting = dict(group_size=G, max_tokens=budget, sampling=sampler.SamplingParams(), eos_ids=eos)
  first, *_, last = map(jax.jit, build(model, **setting, **options))

  def plain(tokens, length, ids, key=0):
    return jax.tree.map(np.asarray, last(params, first(params, tokens, length), jax.random.key(key), ids))

  def continuous(tokens, length, ids, key=0, segment=ALL):
    cached, state, out = first(params, tokens, length, ids, jax.random.key(key))
    busy = True
    while busy:
      state, out, status = last(params, cached, state, out, segment)
      busy = status.busy
      assert status.counters.steps % segment == 0 or not busy
    assert status.done.all() and status.waiting == 0
    return jax.tree.map(np.asarray, out), status.counters

  return continuous if "slots" in options else plain


def prompts(seed=0, vocabulary=V, count=P):
  rng = np.random.default_rng(seed)
  length = rng.integers(1, L + 1, count).astype(np.int32)
  real = np.arange(L)[None] >= L - length[:, None]
  tokens = np.where(real, rng.integers(3, vocabulary, (count, L)), 0).astype(np.int32)
  return tokens, length, rng.permutation(1000)[:count].astype(np.int32)


def same(a, b):
  for x, y in zip(a[:3], b[:3], strict=True):
    np.testing.assert_array_equal(x, y)
  np.testing.assert_allclose(a.sampler_logp, b.sampler_logp, atol=1e-5)
  np.testing.assert_allclose(a.sampler_entropy, b.sampler_entropy, atol=1e-4)


SETTINGS = [  # (slots, shards, ends, chunk, piece_bytes); all but one are slow, each has its own programs
  (8, 4, 0, 7, 0),
  *(pytest.param(s, marks=pytest.mark.slow) for s in [(5, 1, 0, 3, 0), (6, 1, 1, 1, 99), (1, 1, 1, 64, 0)]),
  *(pytest.param(s, marks=pytest.mark.slow) for s in [(24, 1, 1, 1, 0), (12, 2, 0, 3, 1)]),
]


@pytest.mark.parametrize("setting", SETTINGS)
@settings(max_examples=7, deadline=None, derandomize=True)  # a draw within rounding of two tokens may differ
@given(
  seed=st.integers(0, 2**20),
  key=st.integers(0, 9),
  segment=st.sampled_from([1, 3, 7, ALL]),
)
def test_any_slots_shards_prompts_and_ends_give_the_tokens_of_the_plain_sampler(
  setting, seed, key, segment
):
  slots, shards, ends, chunk, piece_bytes = setting
  want = programs(eos=EOS[ends])(*prompts(seed), key)
  cut = dict(slots=slots, shards=shards, prefill_chunk=chunk, piece_bytes=piece_bytes)
  got, work = programs(eos=EOS[ends], **cut)(*prompts(seed), key, segment)
  same(got, want)
  assert work.decoded_tokens == (want.length - 1).sum() and work.responses == P * G
  assert work.steps == max(scheduled(part, slots // shards) for part in np.split(want.length, shards))


def scheduled(length, slots):
  """Steps of a queue that no slot waits for: each request goes to the slot that is free first.

  A response of n tokens takes n - 1 steps, as its first token is the prompt's.
  """
  free = [0] * slots
  for work in length.reshape(-1) - 1:
    if work:
      heapq.heapreplace(free, free[0] + int(work))
  return max(free)


@pytest.mark.slow
def test_logps_and_entropies_are_those_of_a_fresh_forward_pass():
  model, params = tiny()
  tokens, length, ids = prompts()
  rollout, _ = programs(eos=EOS[0], slots=5, shards=1)(tokens, length, ids)
  repeat = lambda x: np.repeat(x[:, None], G, axis=1)
  rows = np.concatenate([repeat(tokens), rollout.tokens], axis=-1)
  scored = lambda params: response_logprobs(
    model.bind(params), rows, repeat(length), T, temperature=1.0, chunk=6
  )
  logp, entropy, *_ = jax.jit(scored)(params)
  real = np.arange(T)[None, None] < rollout.length[..., None]
  np.testing.assert_allclose(rollout.sampler_logp[real], np.asarray(logp)[real], atol=1e-5)
  np.testing.assert_allclose(rollout.sampler_entropy[real], np.asarray(entropy)[real], atol=1e-4)
  for known in rollout.tokens, rollout.sampler_logp, rollout.sampler_entropy:
    assert not known[~real].any()


@pytest.mark.slow
@pytest.mark.parametrize("piece_bytes", [0, 1])
@pytest.mark.parametrize("family", ["gemma2", "gemma3_text", "qwen3_moe"])
def test_windows_tables_soft_caps_and_mixtures(family, piece_bytes):
  """Windows here are shorter than prompt and response: they cut in both, and in the ring after it turned."""
  model = loaded(family)[0]
  windows = [w for w in model.spec.windows if w]
  assert family == "qwen3_moe" or 0 < windows[0] < T - 1
  batch = prompts(vocabulary=model.spec.vocab_size)
  eos = tuple(range(0, model.spec.vocab_size, 16))
  common = dict(eos=eos, record_routing=bool(model.spec.moe))
  want = programs(family, **common)(*batch)
  got, _ = programs(family, slots=5, prefill_chunk=4, piece_bytes=piece_bytes, **common)(*batch)
  same(got, want)
  if model.spec.moe:
    np.testing.assert_array_equal(got.routing, want.routing)
    assert (want.routing < 0).any() and len(np.unique(want.routing)) == model.spec.moe.num_experts + 1
  assert want.length.max() == T and want.ended.any()


@pytest.mark.slow
@pytest.mark.parametrize("piece_bytes", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_caches_in_int8_are_those_of_the_plain_sampler(piece_bytes):
  want = programs(eos=EOS[0], kv_cache="int8")(*prompts())
  got, _ = programs(eos=EOS[0], slots=5, kv_cache="int8", piece_bytes=piece_bytes)(*prompts())
  same(got, want)
  full = programs(eos=EOS[0])(*prompts())
  assert abs(full.sampler_logp - got.sampler_logp).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("budget", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_budgets_with_hardly_a_loop(budget):
  want = programs(eos=EOS[0])(*prompts())
  got, work = programs(eos=EOS[0], budget=budget, slots=5)(*prompts())
  np.testing.assert_array_equal(got.tokens, want.tokens[..., :budget])
  np.testing.assert_array_equal(got.length, np.minimum(want.length, budget))
  np.testing.assert_array_equal(got.ended, want.ended & (want.length <= budget))
  assert work.steps == scheduled(got.length, 5)


def test_rings_lie_in_pieces_of_about_the_bytes_asked_for():
  """As many as divide a shard's slots, and no more than those."""
  model, _ = tiny()
  s, shape = model.spec, jax.ShapeDtypeStruct
  of_slot = s.num_key_value_heads * s.head_dim * (T - 1) * 4
  for slots, piece_bytes, pieces in [(12, 0, 1), (12, 6 * of_slot, 2), (12, 5 * of_slot, 3), (12, 1, 12)]:
    how = dict(group_size=G, max_tokens=T, sampling=sampler.SamplingParams(), eos_ids=EOS[0])
    build = partial(sampler.continuous.build, **how)
    begin, *_ = build(model, slots=slots, piece_bytes=piece_bytes)
    ints = lambda *n: shape(n, jnp.int32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    _, state, _ = jax.eval_shape(begin, model.shapes, ints(P, L), ints(P), ints(P), key)
    rings = state.cache[0].pieces
    assert len(rings) == pieces and {kv.keys.shape[1] for kv in rings} == {slots // pieces}


def on_mesh(devices: Mesh, slots: int, piece_bytes: int = 0):
  """(compiled loop, rollout, status) of the tiny model on a mesh, cut as build.py cuts it."""
  model, params = tiny()
  rows, everywhere = sharding.batch_sharding(devices), sharding.replicated(devices)
  kv = sharding.kv_sharding(devices, model.spec.num_key_value_heads)
  begin, _, advance = sampler.continuous.build(
    model, group_size=G, max_tokens=T, sampling=sampler.SamplingParams(), eos_ids=EOS[0],
    slots=slots, shards=sharding.batch_shards(devices), kv_sharding=kv, piece_bytes=piece_bytes,
  )  # fmt: skip
  where = sharding.param_shardings(devices, model.axes, model.shapes)
  params, (key, steps) = jax.device_put(params, where), jax.device_put((jax.random.key(0), ALL), everywhere)
  cached, state, status = sampler.continuous.shardings(rows, everywhere, kv)
  asked = *sharding.to_device(devices, prompts()), key
  carried = jax.jit(begin, out_shardings=(cached, state, rows))(params, *asked)
  args = params, *carried, steps
  compiled = jax.jit(advance, out_shardings=(state, rows, status)).lower(*args).compile()
  return compiled, *compiled(*args)[1:]


@pytest.mark.slow  # test_weights.py has a mesh by default
@pytest.mark.parametrize("pieces", [1, 2])
def test_eight_devices_sample_the_tokens_of_one_and_no_cache_travels(pieces):
  compiled, rollout, status = on_mesh(mesh(data=2, fsdp=2, tensor=2), slots=8, piece_bytes=pieces - 1)
  want = programs(eos=EOS[0])(*prompts())
  same(sharding.to_host(rollout), want)
  assert status.counters.steps == max(scheduled(part, 2) for part in np.split(want.length, 4))
  text, H = compiled.as_text(), tiny()[0].spec.head_dim
  assert f"f32[1,{2 // pieces},{H},{T - 1}]" in text and f"f32[1,2,{H},{L}]" in text  # rows and heads
  gathers = [line for line in text.splitlines() if re.search(r" (all-gather|all-to-all|collective)", line)]
  caches = rf"\[[\d,]*({H},({T - 1}|{L})|({T - 1}|{L}),{H})\]"
  assert gathers and not [line for line in gathers if re.search(caches, line)]


@pytest.mark.slow
def test_kv_memory_is_at_least_two_fifths_below_the_unshared_layout():
  """Compiled, not run: 16 samples of a prompt, 2,048 tokens each; all 32 rows in slots, as unshared."""
  config = base.get_config("tiny").model
  config.update(num_hidden_layers=4, num_key_value_heads=4)
  model, long = models.build(config, V), 2048
  begin, _, advance = sampler.continuous.build(
    model, group_size=16, max_tokens=long, sampling=sampler.SamplingParams(), eos_ids=(3,), slots=32
  )
  shape = lambda *s: jax.ShapeDtypeStruct(s, jnp.int32)
  key = jax.eval_shape(lambda: jax.random.key(0))
  carried = jax.eval_shape(begin, model.shapes, shape(2, long), shape(2), shape(2), key)
  loop = jax.jit(advance, donate_argnums=2).lower(model.shapes, *carried, shape())
  memory = loop.compile().memory_analysis()
  used = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
  used -= memory.alias_size_in_bytes  # donated, and written in place
  unshared = 32 * sampler.kv_budget.kv_bytes(model.spec, 2 * long)
  assert unshared == sum(2 * 32 * 4 * 8 * 4096 * 4 for _ in range(4))  # layers of k and v, float32
  assert used < 0.6 * unshared, f"{used / unshared:.3f} of the unshared layout's KV alone"


def fits(wanted, memory_gb, **mesh):
  """Slots for 8 prompts x 4 samples, 100 + 201 tokens of 2 x 2 layers x 2 heads x 16 x 4 bytes each.

  The 200 of a slot that are kept take 256 columns, which are whole vectors.
  """
  spec = models.build(base.get_config("mini").model, V).spec
  assert sampler.kv_budget.kv_bytes(spec, 1) == 512
  assert sampler.kv_budget.kv_bytes(spec, 3, kv_cache="int8") == 3 * 2 * 2 * 2 * (16 + 4)
  sizes = dict(prompts=8, group_size=4, prompt_budget=100, max_tokens=201)
  return sampler.kv_budget.slots(spec, wanted=wanted, memory_gb=memory_gb, **sizes, **mesh)


def test_slots_shrink_to_what_the_memory_holds_and_no_further():
  assert fits(20, 0) == 20 and fits(99, 0) == 32  # no more slots than requests
  prompts, slot = 8 * 100 * 512, 256 * 512
  assert fits(20, (prompts + 20 * slot) / 1e9) == 20
  assert fits(20, (prompts + 20 * slot - 1) / 1e9) == 19
  assert fits(20, (prompts + slot) / 1e9) == 1
  # A device of 2 x 2 holds half of the prompts and of the heads.
  assert fits(20, (prompts / 4 + 7 * slot / 2) / 1e9, shards=2, tensor=2) == 14
  assert fits(3, 0, shards=8) == 8  # one a shard at least
  with pytest.raises(ValueError, match=r"config\.rollout\.kv_memory_gb = .* does not hold one slot"):
    fits(20, (prompts + slot - 1) / 1e9)
