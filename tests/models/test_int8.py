"""Eight bits by float64 on the disk's layout; mu is the log-prob of what was run; memory as compiled."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict
from model_folders import loaded, mesh

from grpojax import models
from grpojax.config import check as config_lib
from grpojax.learner import logprobs
from grpojax.models import int8, lora, names
from grpojax.models.attention import attend
from grpojax.recipes import base, quantized
from grpojax.rollout import sampler
from grpojax.rollout.sampler import weights
from grpojax.train import policy as policy_lib
from grpojax.train import programs as programs_lib
from grpojax.train import setup

slow = pytest.mark.slow

L, T, G = 9, 12, 2


@functools.partial(jax.jit, static_argnums=1)
def quantized_weights(params, spec):
  """One program, as the sampler's copy is: another order of operations rounds some halves the other way."""
  return int8.quantize_weights(params, spec)


def by_the_books(matrix):
  """float64 [out, in] -> the same with 255 levels in each row."""
  scale = np.abs(matrix).max(axis=1, keepdims=True) / 127
  return np.round(matrix / np.where(scale > 0, scale, 1)) * scale


@pytest.mark.parametrize(
  "family", ["qwen2_moe", pytest.param("qwen2", marks=slow), pytest.param("gemma2", marks=slow)]
)
def test_every_matrix_of_the_layers_and_nothing_else_is_in_int8_by_output_channel(family):
  model, params, _ = loaded(family)
  params, small = jax.tree.map(np.asarray, (params, quantized_weights(params, model.spec)))
  scales = small.pop("scales")
  for path, leaf in jax.tree.leaves_with_path(small):
    before = functools.reduce(lambda tree, key: tree[key.key], path, params)
    path = ".".join(key.key for key in path)
    if path not in scales:
      np.testing.assert_array_equal(leaf, before)
      continue
    row, scale = names.row(model.spec, path), scales[path]["scale"]
    assert leaf.dtype == jnp.int8 and scale.dtype == jnp.float32
    ours = np.asarray(leaf, np.float64) * np.asarray(scale)
    for at in np.ndindex(leaf.shape[: row.stacked]):
      weight, back, levels = (row.to_disk(np.asarray(x[at], np.float64)) for x in (before, ours, leaf))
      step = np.abs(weight).max(axis=1, keepdims=True) / 127  # of each row of [out, in]
      assert (np.abs(levels).max(axis=1) == 127).all()
      assert (np.abs(back - weight) <= 0.5001 * step).all(), path
  matrices = {"q", "k", "v", "o", "gate", "up", "down"}
  shared = {"shared_gate", "shared_up", "shared_down"} if "moe" in family else set()
  assert {path.split(".")[-1] for path in scales} == matrices | shared


def restored(params, s):
  """The tree that `int8.quantize_weights` stands for, in float32, by numpy."""
  small = quantized_weights(params, s)
  scales = small.pop("scales")

  def one(path, leaf):
    path = ".".join(key.key for key in path)
    return np.asarray(leaf, np.float32) * np.asarray(scales[path]["scale"]) if path in scales else leaf

  return jax.tree.map_with_path(one, small)


def test_what_is_zero_stays_zero_and_the_error_is_half_a_scale():
  x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 7, 3)), jnp.float32).at[2].set(0.0)
  small = int8.quantize(x, (1, 2))
  back = int8.dequantize(*small)
  assert small.scale.shape == (4, 1, 1) and (np.asarray(back[2]) == 0).all()
  assert (np.abs(back - x) <= np.broadcast_to(small.scale, x.shape) / 2 + 1e-7).all()


def prompts(model):
  rng = np.random.default_rng(1)
  length = np.array([9, 4, 6], np.int32)
  return rng.integers(0, model.spec.vocab_size, (3, L)).astype(np.int32), length


def sampled(model, params, kv_cache):
  """(a rollout, its tokens behind the prompts) of a model that never ends."""
  tokens, length = prompts(model)
  prefill, decode = sampler.static_batch.build(
    model, group_size=G, max_tokens=T, sampling=sampler.SamplingParams(), eos_ids=(model.spec.vocab_size,),
    kv_cache=kv_cache,
  )  # fmt: skip
  prefilled = jax.jit(prefill)(params, tokens, length)
  rollout = jax.jit(decode)(params, prefilled, jax.random.key(0), jnp.arange(3))
  repeated = np.repeat(tokens[:, None], G, axis=1), np.repeat(length[:, None], G, axis=1)
  return rollout, np.concatenate([repeated[0], rollout.tokens], axis=-1), repeated[1]


def test_mu_is_the_log_prob_of_the_quantised_model():
  model, params, _ = loaded("qwen2_moe")
  rollout, rows, length = sampled(model, quantized_weights(params, model.spec), "full")
  logp = jax.jit(logprobs.make_logp(model, response_budget=T, temperature=1.0, chunk=T))
  fresh, full = (np.asarray(logp(p, rows, length)[0]) for p in (restored(params, model.spec), params))
  np.testing.assert_allclose(rollout.sampler_logp, fresh, atol=2e-5)
  gap = np.abs(rollout.sampler_logp - full)
  assert gap.max() > 1e-3 and gap.mean() < 0.2


@slow
def test_mu_with_a_cache_in_int8_is_that_of_reading_what_was_rounded():
  """Against a decode loop here, whose keys and values go through `by_the_books` before they are read.

  A number halfway between two levels may be rounded to the other one, since the two compute it in another
  order of operations.  That moves the log-probs of its row by some 1e-3, so the bound on half of the tokens
  is another.
  """
  model, params, _ = loaded("gemma2")  # with windows
  rollout, rows, length = sampled(model, params, "int8")
  rows, first = rows.reshape(-1, L + T), L - length.reshape(-1)
  s, B = model.spec, len(rows)
  columns = np.arange(L + T)

  @jax.jit
  def step(tokens, column, cache):
    def attention(i, q, k, v, scale, cap):
      put = lambda a, x: jax.lax.dynamic_update_slice_in_dim(a, there(x), column, 1)
      k, v = put(cache[i][0], k), put(cache[i][1], v)
      mask = (columns[None] >= first[:, None]) & (columns <= column)[None]
      mask &= (column - columns < (s.windows[i] or 999))[None]
      return attend(q, k, v, mask[:, None], scale, cap), (k, v)

    decoder = model.bind(params)
    hidden, cache, _ = decoder.step(decoder.unstacked_layers(), tokens, column - first, attention)
    return jax.nn.log_softmax(decoder.logits(hidden)), cache

  def there(x):
    """[B, S, K, H] rounded in float64 on the host."""

    def books(a):
      a = np.asarray(a)
      return by_the_books(a.astype(np.float64).reshape(-1, a.shape[-1])).reshape(a.shape).astype(a.dtype)

    return jax.pure_callback(books, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

  decoder = model.bind(params)
  hidden, cache, _ = jax.jit(lambda p: model.bind(p).prefill(rows[:, :L], first, L + T))(params)
  cache = [tuple(there(x) for x in pair) for pair in cache]
  logps = [jax.nn.log_softmax(decoder.logits(hidden))]
  for column in range(L, L + T - 1):
    logp, cache = step(rows[:, column], column, cache)
    logps.append(logp)
  chosen = np.take_along_axis(np.stack(logps, 1), rows[:, L:, None], -1)[..., 0]
  gap = np.abs(rollout.sampler_logp.reshape(B, T) - chosen)
  assert np.median(gap) < 2e-6 and gap.max() < 5e-3


def compiled_decode(weights, kv_cache):
  """A compiled decode program, with the bytes of its parameters and of its cache."""
  c = base.get_config("tiny").model
  c.update(hidden_size=128, num_hidden_layers=4, head_dim=32, intermediate_size=512)
  model = models.build(c, 40)
  params, S = model.shapes, jax.ShapeDtypeStruct
  prefill, decode = sampler.static_batch.build(
    model, group_size=8, max_tokens=128, sampling=sampler.SamplingParams(), eos_ids=(3,), kv_cache=kv_cache
  )
  if weights == "int8":
    params = jax.eval_shape(lambda p: int8.quantize_weights(p, model.spec), params)
  prefilled = jax.eval_shape(prefill, params, S((4, L), jnp.int32), S((4,), jnp.int32))
  compiled = jax.jit(decode).lower(params, prefilled, jax.random.key(0), S((4,), jnp.int32)).compile()
  size = lambda tree: sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
  return compiled, size(params), size(prefilled.cache)


@slow
def test_parameters_and_cache_take_about_a_quarter_in_the_compiled_sampler():
  full, full_params, full_cache = compiled_decode("full", "full")
  small, small_params, small_cache = compiled_decode("int8", "int8")
  assert small_params < 0.28 * full_params and small_cache < 0.29 * full_cache
  saved = full_params + full_cache - small_params - small_cache
  arguments = [program.memory_analysis().argument_size_in_bytes for program in (full, small)]
  assert arguments[0] - arguments[1] == pytest.approx(saved, rel=0.01)


@slow
def test_the_decode_loop_carries_no_restored_copy_of_a_matrix():
  for precision, carried in (("full", "f32"), ("int8", "s8")):
    text = compiled_decode(precision, "full")[0].as_text()
    loops = [line.split(" while(")[0] for line in text.splitlines() if " while(" in line]
    kinds = {kind for loop in loops for kind in re.findall(r"(\w+)\[(?:128,512|512,128)\]", loop)}
    assert kinds == {carried}  # of gate, up and down


@slow
def test_the_adapters_of_now_are_merged_and_then_rounded():
  base_model, params, _ = loaded("qwen2")
  c = ConfigDict(dict(rank=2, alpha=4.0, modules="q|down"))
  model = base_model._replace(lora=lora.build(c, base_model.spec, base_model.axes, base_model.shapes))
  trained = jax.tree.map(lambda s: jnp.full(s.shape, 0.3), model.lora.shapes)
  on = mesh()
  made = weights.build_sync(base.get_config(), "rollout", model, on, "int8")
  small = made.sync(jax.device_put(params | trained, weights.policy_shardings(model, on)))
  assert jax.tree.structure(made.shardings) == jax.tree.structure(small)
  expected = int8.quantize_weights(lora.merge_all(params | trained, model.spec, 2.0), model.spec)
  near = lambda a, b: np.testing.assert_allclose(a, b, atol=1 if a.dtype == jnp.int8 else 1e-6)
  jax.tree.map(near, small, expected)
  assert not np.array_equal(small["layers"]["q"], int8.quantize_weights(params, model.spec)["layers"]["q"])


@slow
def test_scales_lie_where_their_matrices_do():
  model, params, _ = loaded("qwen2_moe")
  on = mesh(fsdp=2, expert=1, tensor=2)
  made = weights.build_sync(base.get_config(), "rollout", model, on, "int8")
  small = made.sync(jax.device_put(params, weights.policy_shardings(model, on)))
  gate = small["scales"]["layers.moe.gate"]["scale"]
  assert gate.addressable_shards[0].data.shape[-1] == gate.shape[-1] // 2  # mlp over tensor
  assert made.shardings["scales"].keys() == small["scales"].keys()


def test_the_recipe_samples_in_int8_and_evaluates_in_full(monkeypatch):
  made = []
  monkeypatch.setattr(sampler.build, "build", lambda _, name, **how: made.append((name, how["spec"])))
  config = quantized.get_config("tiny")
  tokenizer = setup.text.load_tokenizer()
  config.eval.update(samples=config.rollout.group_size)
  model = policy_lib.build_model(config, tokenizer)
  programs_lib.build(config, model, tokenizer, mesh())
  bits = [(name, spec.weights, spec.kv_cache) for name, spec in made]
  assert bits == [("rollout", "int8", "int8"), ("evaluation", "full", "full")]
  config.rollout.weights = "fp8"
  with pytest.raises(ValueError, match=r"config.rollout.weights = 'fp8'; it is 'full' or 'int8'"):
    config_lib.check(config, devices=1)
