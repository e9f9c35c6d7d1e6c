"""Mixtures: every token reaches its experts, replay is hard on the choice and soft on the gates."""

import dataclasses
import functools
import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from model_folders import loaded, mesh

from grpojax import models
from grpojax.learner import logprobs
from grpojax.models import experts as experts_lib
from grpojax.models import moe
from grpojax.rollout import sampler
from grpojax.runtime import sharding

CASES = json.loads((Path(__file__).parents[1] / "data" / "variants_cases.json").read_text())
E, K = 5, 2


def test_replayed_gates_are_the_routers_own_over_the_replayed_set():
  """Case routing_replay_gate: the router alone would have chosen experts 3 and 0."""
  case = next(c["extra"] for c in CASES if c["name"] == "routing_replay_gate")
  logits = jnp.asarray(case["inputs"]["train_router_logits"])
  chosen = np.flatnonzero(case["inputs"]["replayed_expert_mask"]).astype(np.int32)

  def gates(logits):
    experts, gates, _ = moe.route(logits, 2, normalise=True, replay=jnp.asarray(chosen))
    return jnp.zeros(4).at[experts].set(gates)

  value, slope = jax.jit(lambda z: (gates(z), jax.jacobian(gates)(z)[0]))(logits)
  np.testing.assert_allclose(value, case["expected"]["gate"], atol=1e-7)
  np.testing.assert_allclose(slope, case["expected"]["d_gate0_d_logits"], atol=1e-7)
  natural, _, _ = moe.route(logits, 2, normalise=True, replay=jnp.full(2, -1))
  assert natural.tolist() == [3, 0]


def by_loops(block, h, experts, probs, normalise):
  """The mixture written out token by token in float64."""
  w = {name: np.asarray(getattr(block, name)[...], np.float64) for name in ("gate", "up", "down")}
  h, out = np.asarray(h, np.float64), np.zeros(h.shape)
  for at in np.ndindex(h.shape[:2]):
    gates = np.asarray(probs, np.float64)[at][experts[at]]
    for e, g in zip(experts[at], gates / (gates.sum() if normalise else 1), strict=True):
      x = h[at] @ w["gate"][e]
      out[at] += g * ((x / (1 + np.exp(-x)) * (h[at] @ w["up"][e])) @ w["down"][e])
  return out


@pytest.mark.parametrize("crowded", [False, True])
def test_no_token_is_dropped_even_if_all_choose_one_expert(crowded):
  spec = loaded("qwen3_moe")[0].spec
  block = moe.Mixture(spec, None, nnx.Rngs(0))
  h = jax.random.normal(jax.random.key(1), (3, 7, spec.hidden_size))
  replay = jnp.broadcast_to(jnp.asarray([4, 2]), (3, 7, 2)) if crowded else None
  y, routed = jax.jit(block)(h, replay)
  experts = np.asarray(routed.experts)
  assert len(np.unique(experts)) == (2 if crowded else E)
  probs = jax.nn.softmax(jnp.einsum("bsd,de->bse", h, block.router[...]))
  np.testing.assert_allclose(y, by_loops(block, h, experts, probs, True), atol=1e-5)


def gradients(of_experts, *arrays):
  """The gradients of a sum over outputs by arrays, of which the first is h; and the outputs."""

  def loss(*arrays):
    y = of_experts(*arrays)
    return (jnp.sin(y) * arrays[0]).sum(), y

  return jax.jit(jax.grad(loss, range(len(arrays)), has_aux=True))(*arrays)


def by_all(experts, first, h, gates, gate, up, down):
  """Every token through every expert, numbers `first` and on."""
  wide = lambda w: jnp.einsum("bsd,edf->bsef", h, w)
  of_expert = jnp.einsum("bsef,efd->bsed", jax.nn.silu(wide(gate)) * wide(up), down)
  chosen = jax.nn.one_hot(experts - first, len(gate)) * gates[..., None]
  return jnp.einsum("bske,bsed->bsd", chosen, of_expert)


def drawn(B, S, D, F, k, local):
  """h, gates, the matrices of so many experts, and a choice of k among eight."""
  keys = iter(jax.random.split(jax.random.key(0), 6))
  draw = lambda *shape: jax.random.normal(next(keys), shape)
  h, gates = draw(B, S, D), draw(B, S, k)
  weights = [0.2 * draw(local, *shape) for shape in ((D, F), (D, F), (F, D))]
  return h, gates, weights, jax.lax.top_k(draw(B, S, 8), k)[1]


def assert_close(found, expected):
  for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5 * float(jnp.abs(b).max()))


@pytest.mark.parametrize("crowded", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_choices_of_some_experts_are_worked_off_in_parts(crowded):
  """Two of eight experts are here: an even load is one part, all tokens on them are four."""
  first, (B, S, k) = 2, (16, 200, 2)
  h, gates, weights, experts = drawn(B, S, D=24, F=6, k=k, local=2)
  experts = jnp.broadcast_to(jnp.asarray([3, 2]), (B, S, k)) if crowded else experts
  rows = experts_lib._rows_at_a_time(B * S * k, 4)
  here = np.asarray((experts >= first) & (experts < first + 2)).sum()
  assert -(-here // rows) == (4 if crowded else 1)
  how = dict(activation="silu", first=first, shards=4)
  in_parts = lambda h, gates, *weights: experts_lib.apply_experts(h, experts, gates, *weights, **how)
  arrays = h, gates, *weights
  assert_close(gradients(in_parts, *arrays), gradients(partial(by_all, experts, first), *arrays))


@pytest.mark.parametrize("here", [8, 2])
@pytest.mark.parametrize("joined", [False, True])
def test_few_choices_and_those_of_all_experts_are_worked_off_at_once(here, joined):
  """Also with gate and up side by side, as they are gathered."""
  first, shards = (0, 1) if here == 8 else (2, 4)
  h, gates, weights, experts = drawn(3, 7, D=24, F=6, k=3, local=here)

  def at_once(h, gates, gate, up, down):
    inner = [jnp.concatenate([gate, up], axis=-1)] if joined else [gate, up]
    how = dict(activation="silu", first=first, shards=shards)
    return experts_lib.apply_experts(h, experts, gates, *inner, down, **how)

  arrays = h, gates, *weights
  assert_close(gradients(at_once, *arrays), gradients(partial(by_all, experts, first), *arrays))


def test_load_balance_loss_is_that_of_transformers():
  model, params, expected = loaded("qwen2_moe")
  column = np.arange(expected["tokens"].shape[1])[None]
  real = (column >= expected["first"][:, None]) & (column < expected["last"][:, None])

  @jax.jit
  def balance(params, tokens, first, counted):
    segment = models.left_padded(tokens.shape[1], first)
    routed = model.bind(params).forward(tokens, segment, counted=counted)[1]
    return models.load_balance_loss(routed.load, models.expert_cost(routed.load)), routed.experts

  loss, experts = balance(params, expected["tokens"], expected["first"], jnp.asarray(real))
  np.testing.assert_allclose(loss, expected["balance"], rtol=1e-5)
  assert experts.shape == (2, *real.shape, K)


def test_a_replayed_token_counts_in_no_load():
  block = moe.Mixture(loaded("qwen3_moe")[0].spec, None, nnx.Rngs(0))
  h = jax.random.normal(jax.random.key(1), (1, 4, 24))
  replay = jnp.full((1, 4, K), -1).at[0, 1].set(jnp.asarray([3, 1]))
  counted = jnp.asarray([[True, True, True, False]])
  run = jax.jit(block)
  load = run(h, replay, counted)[1].load
  alone = run(h, jnp.full((1, 4, K), -1), counted.at[0, 1].set(False))[1].load
  np.testing.assert_allclose(load, alone, rtol=1e-6)
  assert load[2].tolist() == [2.0] * E


def replay_setting():
  """A Qwen3-MoE, rollouts recorded by the sampler, and the learner's log-probs as one program."""
  model, params, expected = loaded("qwen3_moe")
  L, T = int(expected["prompt"]), 12
  prefill, decode = sampler.static_batch.build(
    model, group_size=2, max_tokens=T, sampling=sampler.SamplingParams(), eos_ids=(7, 11, 20),
    record_routing=True,
  )
  prompts, length = expected["tokens"][:, :L], L - expected["first"]
  prefilled = jax.jit(prefill)(params, prompts, length)
  rollout = jax.jit(decode)(params, prefilled, jax.random.key(3), jnp.arange(3))
  repeat = lambda x: np.repeat(x[:, None], 2, axis=1)
  tokens = jnp.asarray(np.concatenate([repeat(prompts), rollout.tokens], axis=-1))

  @jax.jit
  def scored(params, routing):
    decoder = model.bind(params)
    args = decoder, tokens, repeat(length), T, routing
    logp, _, routed = logprobs.response_logprobs(*args, temperature=1.0, chunk=5)
    return logp, routed.experts

  return params, rollout, np.asarray(rollout.routing), scored, repeat(expected["first"])


def test_the_sampler_records_what_the_full_forward_chooses_and_replay_holds_it_fixed():
  params, rollout, routing, scored, first = replay_setting()
  layers, T = routing.shape[3], rollout.tokens.shape[-1]
  column = np.arange(routing.shape[2])[None, None]
  fed = (column >= first[..., None]) & (column < 16 + np.asarray(rollout.length)[..., None] - 1)
  assert routing.shape == (3, 2, 16 + T - 1, layers, K) and routing.dtype == np.int8
  assert (routing[~fed] == -1).all() and (routing[fed] >= 0).all() and rollout.ended.any()

  nothing = jnp.full(routing.shape, -1)
  logp, chosen = scored(params, nothing)
  np.testing.assert_array_equal(np.asarray(chosen)[fed], routing[fed])
  replayed, kept = scored(params, jnp.asarray(routing))
  real = np.arange(T)[None, None] < np.asarray(rollout.length)[..., None]
  np.testing.assert_allclose(replayed[real], logp[real], atol=1e-6)

  other = jax.tree.map(lambda x: x, params)
  router = other["layers"]["moe"]["router"]
  other["layers"]["moe"]["router"] = router + 0.5 * jax.random.normal(jax.random.key(0), router.shape)
  moved = np.asarray(scored(other, nothing)[1])
  _, kept = scored(other, jnp.asarray(routing))
  assert (moved[fed] != routing[fed]).mean() > 0.1  # the router has changed its mind
  np.testing.assert_array_equal(np.asarray(kept)[fed], routing[fed])


@functools.cache
def block_and_gradient(**sizes):
  """A mixture's output and its gradients, on a mesh of these sizes or, without any, on none."""
  small = dict(num_experts=4, num_experts_per_tok=2, intermediate_size=6, norm_topk_prob=True)
  spec = dataclasses.replace(loaded("qwen2_moe")[0].spec, moe=models.Moe(**small))
  devices = mesh(**sizes) if sizes else None
  graph, params = nnx.split(moe.Mixture(spec, devices, nnx.Rngs(0)))
  h = jax.random.normal(jax.random.key(1), (24, 3, spec.hidden_size))

  def loss(params, h):
    y, _ = nnx.merge(graph, params)(h)
    return (jnp.sin(y) * jnp.arange(24.0)[None, None]).sum(), y

  rows = sharding.batch_sharding(devices) if sizes else None
  where = sharding.replicated(devices) if sizes else None
  program = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True), in_shardings=(where, rows))
  return jax.tree.leaves(jax.tree.map(np.asarray, program(params, h)))


@pytest.mark.parametrize(
  "sizes",
  [
    dict(fsdp=2, tensor=2, expert=2),
    dict(fsdp=4),  # gate and up are joined and gathered
    *(pytest.param(s, marks=pytest.mark.slow) for s in (dict(context=3, expert=2), dict(fsdp=2, expert=3))),
  ],
)
def test_a_mesh_computes_the_same_and_the_same_gradient(sizes):
  """Cut over rows, columns, experts and widths; three shards of four experts cannot be cut and hold all."""
  assert_close(block_and_gradient(**sizes), block_and_gradient())


def test_dense_models_have_no_routing():
  model, params, expected = loaded("qwen3")
  tokens = expected["tokens"]
  outs = jax.eval_shape(lambda p: model.bind(p).forward(tokens, jnp.ones_like(tokens)), params)
  assert outs[1] is None
