"""One optimiser step: (state, objective, batch) -> (state, metrics).  The only `jax.grad` of the project.

The denominator of the loss belongs to the whole optimiser batch: `objective.prepare` makes every
weight before the batch is cut, so microbatches and devices only add up.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import objective as objective_lib
from grpojax import sharding
from grpojax.batch import Batch
from grpojax.logprobs import response_logprobs
from grpojax.models import Model, expert_cost, load_balance_loss


class State(NamedTuple):
  """All that an update changes.  Donated to the update, returned sharded as it came."""

  params: dict  # what is trained: everything, or the adapters
  opt_state: tuple
  updates: jax.Array  # [] int32, optimiser steps taken


def warmup_constant(config: ConfigDict) -> optax.Schedule:
  """Learning rate by optimiser step: linear from 0 over `warmup_steps`, then constant."""
  if config.warmup_steps == 0:  # optax would stay at the 0 that warm-up starts from
    return optax.constant_schedule(config.learning_rate)
  return optax.schedules.warmup_constant_schedule(0.0, config.learning_rate, config.warmup_steps)


def make_optimizer(config: ConfigDict, schedule: optax.Schedule) -> optax.GradientTransformation:
  """AdamW behind a clip of the global gradient norm.  Norms and biases are not decayed."""
  matrix = lambda path, _: not path[-1].key.endswith(("norm", "bias"))  # noqa: E731
  matrices = lambda params: jax.tree.map_with_path(matrix, params)  # noqa: E731
  return optax.chain(
    optax.clip_by_global_norm(config.clip_norm),
    optax.adamw(
      schedule, config.b1, config.b2, weight_decay=config.weight_decay, mask=matrices
    ),
  )


def state_shardings(model: Model, tx: optax.GradientTransformation, mesh: Mesh) -> State:
  """Where every leaf of a State lives: an optimiser moment beside the parameter of its path."""
  trained = model.trained
  params = sharding.param_shardings(mesh, trained.axes, trained.shapes)
  everywhere = sharding.replicated(mesh)
  named = {_names(path): leaf for path, leaf in jax.tree.leaves_with_path(params)}

  def beside(path, _):
    names = _names(path)
    tails = (names[i:] for i in range(len(names)))
    return next((named[tail] for tail in tails if tail in named), everywhere)

  opt_state = jax.tree.map_with_path(beside, jax.eval_shape(tx.init, trained.shapes))
  return State(params, opt_state, everywhere)


def _names(path) -> tuple[str, ...]:
  """The dict keys on a tree path: (..., "layers", "q")."""
  return tuple(key.key for key in path if isinstance(key, jax.tree_util.DictKey))


def make_init(model: Model, tx: optax.GradientTransformation):
  """key -> State with random parameters.  Jit it with `state_shardings` as out_shardings."""

  def init(key) -> State:
    return fresh(model.init(key), tx)

  return init


def fresh(params, tx: optax.GradientTransformation) -> State:
  """Parameters with a new optimiser."""
  return State(params, tx.init(params), jnp.int32(0))


def make_logp(model: Model, *, response_budget: int, temperature: float, chunk: int):
  """(params, tokens, prompt_length, routing=None, counted=None) -> what `response_logprobs` gives."""

  def logp(params, tokens, prompt_length, routing=None, counted=None):
    return response_logprobs(
      model.bind(params), tokens, prompt_length, response_budget, routing, counted,
      temperature=temperature, chunk=chunk,
    )  # fmt: skip

  return logp


def make_old_logp(logp_fn, record_routing: bool):
  """The same arguments -> logp, entropy, routing, expert_cost: fields of a whole optimiser batch.

  The last two are None unless asked for.  What an expert costs is π_old's: a constant of the batch, as
  the loss's weights are, so that microbatches add up; at the first update it is the policy's own.
  """

  def old_logp(params, tokens, prompt_length, routing, counted):
    logp, entropy, routed = logp_fn(params, tokens, prompt_length, routing, counted)
    cost = None
    if counted is not None:
      cost = expert_cost(routed.load)
      cost = jnp.broadcast_to(cost[None, None], (*prompt_length.shape, *cost.shape))
    return logp, entropy, routed.experts if record_routing else None, cost

  return old_logp


def make_update(
  logp_fn, tx: optax.GradientTransformation, schedule: optax.Schedule, microbatches: int,
  load_balance: float = 0.0,
):  # fmt: skip
  """Returns update(state, objective, batch, frozen=None) -> (state, metrics), a pure function to be jitted.

  `objective` is an argument, so that a sweep over its numbers compiles once, and so is `frozen`: what
  else the policy is made of when only adapters are trained.  Metrics are those of the policy the
  update started from, over the whole optimiser batch, with `grad_norm` before clipping.
  `load_balance` is the coefficient of the loss of that name, where the batch has an `expert_cost`.
  """

  def loss_fn(frozen, params, objective, batch: Batch):
    policy = frozen | params if frozen else params
    logp, entropy, routed = logp_fn(
      policy, batch.tokens, batch.prompt_length, batch.routing, batch.counted
    )
    loss, metrics = objective_lib.loss(objective, logp, batch, entropy)
    if batch.expert_cost is not None:
      balance = load_balance * load_balance_loss(routed.load, batch.expert_cost[0, 0])
      loss, metrics = loss + balance, metrics | {"loss/load_balance": balance}
    return loss, metrics

  def update(state: State, objective, batch: Batch, frozen: dict | None = None):
    batch = objective_lib.prepare(objective, batch)
    loss = partial(loss_fn, frozen)
    grads, metrics = _accumulate(loss, state.params, objective, batch, microbatches)
    updates, opt_state = tx.update(grads, state.opt_state, state.params)
    metrics |= objective_lib.describe(batch)
    metrics["grad_norm"] = optax.global_norm(grads)
    metrics["learning_rate"] = jnp.asarray(schedule(state.updates), jnp.float32)
    state = State(optax.apply_updates(state.params, updates), opt_state, state.updates + 1)
    return state, metrics

  return update


def _accumulate(loss_fn, params, objective, batch: Batch, microbatches: int):
  """Sums gradients and metrics over microbatches; loss and metrics are additive, so this is exact."""
  value_and_grad = jax.value_and_grad(loss_fn, has_aux=True)

  def one(piece):
    (loss, metrics), grads = value_and_grad(params, objective, piece)
    return grads, metrics | {"loss": loss}

  if microbatches == 1:
    return one(batch)

  # Dealt like cards, not cut in blocks: each device keeps an equal share of every piece, so that
  # nothing moves between devices.
  deal = lambda x: x.reshape(-1, microbatches, *x.shape[1:]).swapaxes(0, 1)  # noqa: E731
  pieces = jax.tree.map(deal, batch)
  zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(one, _first(pieces)))
  total, _ = jax.lax.scan(lambda s, p: (jax.tree.map(jnp.add, s, one(p)), None), zeros, pieces)
  return total


def _first(pieces):
  return jax.tree.map(lambda x: x[0], pieces)
