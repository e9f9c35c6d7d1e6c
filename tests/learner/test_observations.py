"""Responses with tokens in their middle that the policy did not choose: they are read, and not trained on."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict

from grpojax import models, objective
from grpojax.learner import batching, rows
from grpojax.learner import state as learner_state
from grpojax.learner.update import make_old_logp, make_update
from grpojax.recipes import base
from grpojax.runtime import sharding
from grpojax.train.supervised import OBJECTIVE
from grpojax.types import ACTION, OBSERVATION, PADDING, Groups, Prompts, Rollout, Scored

P, G, L, T, V = 2, 2, 5, 12, 30
CONFIG = base.get_config("tiny")
CONFIG.updates_per_rollout = 1
CONFIG.microbatches = 2
CONFIG.logprob_chunk = 4
CONFIG.data.prompt_budget = L
CONFIG.rollout.update(prompts=P, group_size=G, max_tokens=T)
MODEL = models.build(CONFIG.model, V)
MESH = sharding.make_mesh(ConfigDict(dict.fromkeys((*sharding.AXES, "slices"), 1)))
LENGTH = np.array([[12, 9], [4, 12]], np.int32)
OBSERVED = np.array([[(3, 7), (2, 8)], [(1, 1), (0, 10)]])  # columns; in one response nothing


def groups():
  rng = np.random.default_rng(0)
  column = np.arange(T)
  kind = np.where(column < LENGTH[..., None], ACTION, PADDING)
  first, last = OBSERVED[..., :1], OBSERVED[..., 1:]
  kind = np.where((column >= first) & (column < last), OBSERVATION, kind).astype(np.int8)
  prompt_length = np.array([5, 2], np.int32)
  tokens, ids = rng.integers(0, V, (P, L), np.int32), np.arange(P, dtype=np.int32)
  prompts = Prompts(tokens, prompt_length, ids, [{}] * P)
  nats = np.zeros((2, P, G, T), np.float32)
  rollout = Rollout(rng.integers(0, V, (P, G, T), np.int32), LENGTH, LENGTH < T, *nats, kind=kind)
  reward = rng.normal(1, 0.5, (P, G)).astype(np.float32)
  return Groups(prompts, rollout, Scored(reward, reward, np.ones((P, G), bool), {}, {}))


@functools.cache
def made():
  """Parameters; and by hand: (loss, log π of the actions), gradients."""
  params = jax.jit(MODEL.init)(jax.random.key(0))
  return params, *jax.jit(jax.value_and_grad(by_hand, has_aux=True))(params)


def echo(params):
  """Minus the mean log π of the observations, one sequence after the other."""
  (prompts, rollout, _), decoder, found = groups(), MODEL.bind(params), []
  for p, g in np.ndindex(P, G):
    prompt = prompts.tokens[p, L - prompts.length[p] :]
    tokens = np.concatenate([prompt, rollout.tokens[p, g, : LENGTH[p, g]]])
    hidden = decoder(jnp.asarray(tokens)[None], jnp.zeros(1, jnp.int32))[0]
    logp = jax.nn.log_softmax(hidden @ decoder.unembedding().T)
    for t in np.flatnonzero(rollout.kind[p, g] == OBSERVATION):
      found.append(logp[prompts.length[p] + t - 1, rollout.tokens[p, g, t]])
  return -sum(found) / len(found)


def by_hand(params):
  """Loss −Σ reward · log π / actions, and log π of the actions, one sequence after the other."""
  (prompts, rollout, scored), decoder, sums, found = groups(), MODEL.bind(params), 0.0, {}
  for p, g in np.ndindex(P, G):
    prompt = prompts.tokens[p, L - prompts.length[p] :]
    tokens = np.concatenate([prompt, rollout.tokens[p, g, : LENGTH[p, g]]])
    hidden = decoder(jnp.asarray(tokens)[None], jnp.zeros(1, jnp.int32))[0]
    logp = jax.nn.log_softmax(hidden @ decoder.unembedding().T)
    for t in range(LENGTH[p, g]):
      if rollout.kind[p, g, t] == ACTION:
        found[p, g, t] = logp[prompts.length[p] + t - 1, rollout.tokens[p, g, t]]
        sums += scored.reward[p, g] * found[p, g, t]
  return -sums / len(found), found


@pytest.mark.parametrize(
  "kind",
  ["packed", pytest.param("single", marks=pytest.mark.slow)],
)
def test_an_observation_is_read_and_what_follows_it_is_trained_on(kind):
  params, (loss, found), grads = made()
  config = CONFIG.copy_and_resolve_references()
  config.rows = kind
  batch = batching.make_batches(config, MESH, rows.pack_spec(config, MODEL, MESH), groups(), None)[0]
  assert batch.length.tolist() == LENGTH.tolist()
  assert {tuple(at) for at in np.argwhere(batch.mask)} == found.keys()

  layout = rows.build(config, MODEL, MESH)
  inputs = batch.tokens, batch.prompt_length, None, None, batch.packing_index
  logp = jax.jit(make_old_logp(layout, False))(params, *inputs)[0]
  for at, expected in found.items():
    np.testing.assert_allclose(logp[at], expected, atol=2e-6)

  update = jax.jit(make_update(layout, optax.identity(), optax.constant_schedule(0.0)))
  before = learner_state.create(params, optax.identity())
  after, metrics = update(before, objective.build(OBJECTIVE), batch)
  assert float(metrics["loss"]) == pytest.approx(float(loss), abs=1e-6)
  for x, y, g in zip(*map(jax.tree.leaves, (after.params, params, grads)), strict=True):
    np.testing.assert_allclose(x - y, g, atol=1e-6)


@pytest.mark.parametrize("kind", ["packed", pytest.param("single", marks=pytest.mark.slow)])
def test_a_component_learns_to_predict_observations_which_the_policy_term_leaves_out(kind):
  params = made()[0]
  loss, grads = jax.jit(jax.value_and_grad(echo))(params)
  config = CONFIG.copy_and_resolve_references()
  config.rows, config.env.name = kind, "any"
  config.objective.advantage = dict(fn="none")
  config.objective.component.echo = dict(fn="ce", coef=1.0, stream="observations")
  seen = batching.beside(config, groups(), 0)
  batch = batching.make_batches(config, MESH, rows.pack_spec(config, MODEL, MESH), seen, None)[0]
  layout = rows.build(config, MODEL, MESH)
  update = jax.jit(make_update(layout, optax.identity(), optax.constant_schedule(0.0)))
  before = learner_state.create(params, optax.identity())
  after, metrics = update(before, objective.build(config.objective), batch)
  assert float(metrics["loss/ce"]) == pytest.approx(float(loss), abs=1e-6)
  for x, y, g in zip(*map(jax.tree.leaves, (after.params, params, grads)), strict=True):
    np.testing.assert_allclose(x - y, g, atol=1e-6)
