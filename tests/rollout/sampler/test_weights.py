"""The sampler's own layout of the learner's parameters: other devices hold them, and no token changes."""

import functools

import jax
import numpy as np
import pytest

from grpojax import models
from grpojax.data import text
from grpojax.recipes import base
from grpojax.rollout.sampler import weights
from grpojax.runtime import sharding
from grpojax.train import policy as policy_lib
from grpojax.train import programs as programs_lib
from grpojax.types import Prompts

slow = pytest.mark.slow
P, L = 8, 5
LEARNER = dict(data=1, fsdp=2, context=2, tensor=2)


def config(**mesh):
  c = base.get_config("tiny")
  c.unlock()
  c.rollout.update(prompts=P, group_size=2, max_tokens=6, slots=8, prefill_chunk=8)
  c.eval.update(samples=2, max_tokens=6)
  c.data.prompt_budget = L
  c.mesh.data = 1
  for key, value in mesh.items():
    *path, leaf = key.split("__")
    functools.reduce(lambda node, part: node[part], path, c.mesh)[leaf] = value
  return c


def sampled(c, prompts):
  """(a rollout of the prompts, the sampler, the learner's parameters), of the config's mesh."""
  tokenizer, mesh = text.load_tokenizer(), sharding.make_mesh(c.mesh)
  model = policy_lib.build_model(c, tokenizer, mesh)
  where = sharding.param_shardings(mesh, model.axes, model.shapes, model.rules)
  params = jax.device_put(models.build(c.model, len(tokenizer)).init(jax.random.key(0)), where)
  if model.lora:
    trained = sharding.param_shardings(mesh, model.lora.axes, model.lora.shapes, model.rules)
    draw = lambda s, place: jax.device_put(np.random.default_rng(s.size).normal(0, 0.1, s.shape), place)
    params = params | jax.tree.map(lambda s, w: draw(s, w).astype(s.dtype), model.lora.shapes, trained)
  run = programs_lib.build(c, model, tokenizer, mesh).sample
  return run(params, prompts, jax.random.key(1))[0], run, params


def asked():
  rng = np.random.default_rng(0)
  length = rng.integers(1, L + 1, P)
  tokens = np.where(np.arange(L)[None] >= L - length[:, None], rng.integers(3, 200, (P, L)), 0)
  return Prompts(tokens.astype(np.int32), length.astype(np.int32), np.arange(P, dtype=np.int32), [])


@pytest.mark.parametrize(
  ("sampler", "slots", "change"),
  [
    (dict(sampler__tensor=4), 8, {}),  # more shards than the two kv heads, which are whole then
    pytest.param(dict(sampler__tensor=2, sampler__expert=2), 0, dict(num_experts=4), marks=slow),
    pytest.param(dict(sampler__tensor=8), 0, dict(rank=2), marks=slow),
    pytest.param({}, 0, dict(num_experts=4), marks=slow),  # no own layout: one token has no columns to cut
  ],
)
def test_the_samplers_own_layout_changes_no_token(sampler, slots, change):
  def made(**mesh):
    c = config(**mesh)
    c.rollout.slots = slots
    (c.lora if "rank" in change else c.model).update(change)
    return c

  want, alone, _ = sampled(made(), asked())
  got, run, params = sampled(made(**LEARNER, **sampler), asked())
  assert alone.sync is None and bool(run.sync) == bool(sampler)
  for x, y in zip(got[:3], want[:3], strict=True):
    np.testing.assert_array_equal(x, y)
  np.testing.assert_allclose(got.sampler_logp, want.sampler_logp, atol=1e-5)
  if not change:
    own = run.sync_weights(params)["layers"]
    assert own["gate"].sharding.shard_shape(own["gate"].shape) == (2, 32, 64 // 4)
    assert own["k"].sharding.is_fully_replicated and not own["q"].sharding.is_fully_replicated


def test_equal_layouts_copy_nothing():
  """The learner's parameters are what is sampled from, not a copy of them."""
  c = config(data=4, tensor=2, sampler__tensor=2)
  mesh = sharding.make_mesh(c.mesh)
  model = policy_lib.build_model(c, text.load_tokenizer(), mesh)
  made = weights.build_sync(c, "rollout", model, mesh, "full")
  assert made.sync is None and weights.copy_of(c, model, mesh, "full") is None and made.model is model


@pytest.mark.parametrize("head_dtype", ["", "float32"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_copy_is_in_the_compute_dtype_as_far_as_every_use_is(head_dtype, tied):
  """Sampling rounds matrices to bfloat16 anyway: the copy moves half the bytes and changes no logit."""
  c = config(data=2, fsdp=4, sampler__tensor=2)
  c.model.update(dtype="bfloat16", head_dtype=head_dtype, tie_word_embeddings=tied)
  mesh = sharding.make_mesh(c.mesh)
  model = policy_lib.build_model(c, text.load_tokenizer(), mesh)
  params = jax.jit(model.init)(jax.random.key(0))
  small = weights.in_compute_dtype(params, model.spec)
  assert {x.dtype.name for x in jax.tree.leaves(small)} == {"bfloat16", "float32"}
  assert small["embedding" if tied else "head"].dtype.name == (head_dtype or "bfloat16")
  tokens, first = asked().tokens, L - asked().length
  logits = jax.jit(lambda p: model.bind(p).logits(model.bind(p).prefill(tokens, first, L)[0]))
  np.testing.assert_array_equal(logits(params), logits(small))
  made = weights.copy_of(c, model, mesh, "full")
  whole, half = (sum(x.nbytes for x in jax.tree.leaves(tree)) for tree in (params, small))
  own = small["embedding" if tied else "head"].nbytes if head_dtype else 0  # the head stays as it is
  assert half - own < 0.6 * (whole - own) and half / 2 < made.bytes_per_chip < 0.6 * half


@pytest.mark.slow
def test_a_compute_dtype_narrower_than_the_parameters_is_rounded_once_a_rollout(monkeypatch):
  """And draws the same tokens as a sampler that reads and rounds the learner's for each of them."""
  c = config(data=8)
  c.model.dtype = "bfloat16"
  got, run, params = sampled(c, asked())
  kinds = {x.dtype.name for x in jax.tree.leaves(run.sync_weights(params))}
  assert run.sync and kinds == {"bfloat16", "float32"}  # norms stay
  learners = lambda config, name, model, mesh, precision: weights.Weights(
    model, mesh, weights.policy_shardings(model, mesh), None
  )
  monkeypatch.setattr(weights, "build_sync", learners)
  want, alone, _ = sampled(c, asked())
  assert not alone.sync
  for x, y in zip(got, want, strict=True):
    np.testing.assert_array_equal(x, y)
