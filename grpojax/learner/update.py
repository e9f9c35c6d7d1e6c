"""One optimiser step: (state, objective, batch) -> (state, metrics).  The only `jax.grad` of the project.

The denominator of the loss belongs to the whole optimiser batch: `objective.prepare` makes every
weight before the batch is cut, so microbatches and devices only add up.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import optax

from grpojax import objective as objective_lib
from grpojax.learner import ess as ess_lib
from grpojax.learner import state as state_lib
from grpojax.learner.ess import EssConfig
from grpojax.learner.rows import Rows
from grpojax.learner.state import State, StatsConfig
from grpojax.models import expert_cost, load_balance_loss
from grpojax.types import Batch


def make_old_logp(rows: Rows, record_routing: bool) -> Callable:
  """Returns old_logp(params, tokens, prompt_length, routing, balance_mask, packing_index, context, kept).

  It returns the fields logp, entropy, routing and expert_cost of a whole optimiser batch; the last two are
  None unless asked for.  What an expert costs is π_old's: a constant of the batch, as the loss's weights
  are, so that microbatches add up; at the first update it is the policy's own.
  """

  def old_logp(params, tokens, prompt_length, routing, balance_mask, packing_index, context=None, kept=None):
    inputs = tokens, prompt_length, routing, balance_mask, packing_index, context, kept
    logp, entropy, routed = rows.logp(params, *inputs)
    cost = None
    if balance_mask is not None:
      cost = expert_cost(routed.load)
      cost = jnp.broadcast_to(cost[None, None], (*prompt_length.shape, *cost.shape))
    return logp, entropy, routed.experts if record_routing else None, cost

  return old_logp


def make_update(
  rows: Rows, tx: optax.GradientTransformation, schedule: optax.Schedule, load_balance: float = 0.0,
  stats: StatsConfig = StatsConfig(), ess: EssConfig = EssConfig(),  # noqa: B008
) -> Callable:  # fmt: skip
  """Returns update(state, objective, batch, frozen=None) -> (state, metrics), a pure function to be jitted.

  `objective` is an argument, so that a sweep over its numbers compiles once, and so is `frozen`: what
  else the policy is made of when only adapters are trained.  Metrics are those of the policy that the
  update started from, over the whole optimiser batch, with `grad_norm` before clipping.  Where the loss, the
  gradient, or what the optimiser makes of it is not finite, or the gradient's norm is a spike, parameters and
  optimiser stay as they are.
  `load_balance` is the coefficient of the loss of that name, where the batch has an `expert_cost`.  `ess`
  shortens the step, decay included, where the sampler's completions are far from the policy.
  """
  loss_fn = _make_loss(load_balance)

  def update(state: State, objective, batch: Batch, frozen: dict | None = None):
    objective = objective_lib.scale_kl(objective, state.stats.kl_scale)
    padding = rows.padding(batch)
    batch = objective_lib.prepare(objective, batch, _moved_logp(rows, objective, state, batch, frozen))
    gradient = jax.value_and_grad(loss_fn, argnums=1, has_aux=True)
    grads, metrics, logp = rows.accumulate(gradient, (frozen, state.params), objective, batch)
    updates, opt_state = tx.update(grads, state.opt_state, state.params)
    metrics |= objective_lib.describe(batch, logp)
    if ess.rule:
      metrics["update/ess_share"] = ess_lib.share_of(batch, logp)
      metrics["update/step_factor"] = ess_lib.factor(ess, metrics["update/ess_share"])
      updates = optax.tree.scale(metrics["update/step_factor"], updates)
    metrics["update/padding"] = padding
    metrics["grad_norm"] = optax.global_norm(grads)
    metrics["learning_rate"] = jnp.asarray(schedule(state.updates), jnp.float32)
    moved = State(optax.apply_updates(state.params, updates), opt_state, state.updates + 1, state.stats)
    return _take_step(stats, state, moved, metrics)

  return update


def _moved_logp(rows: Rows, objective, state: State, batch: Batch, frozen: dict | None):
  """Returns log π_θ [P, G, T] of the whole batch, or None where `prepare` does not read it."""
  if not objective_lib.reads_batch_logp(objective):
    return None
  policy = frozen | state.params if frozen else state.params
  seen = batch.tokens, batch.prompt_length, batch.routing, None, batch.packing_index
  return rows.logp(policy, *seen, batch.context, batch.kept)[0]


def _make_loss(load_balance: float) -> Callable:
  """Returns loss(frozen, params, score, objective, batch) -> loss [], (metrics, logp [P, G, T])."""

  def loss_fn(frozen, params, score, objective, batch: Batch):
    logp, entropy, routed, *divergence = score(frozen | params if frozen else params)
    if divergence:  # from the teacher, over the whole vocabulary
      batch = batch._replace(divergence=divergence[0])
    loss, metrics = objective_lib.loss(objective, logp, batch, entropy)
    logp = jax.lax.stop_gradient(logp)
    if batch.expert_cost is not None:
      balance = load_balance * load_balance_loss(routed.load, batch.expert_cost[0, 0])
      loss, metrics = loss + balance, metrics | {"loss/load_balance": balance}
    return loss, (metrics, logp)

  return loss_fn


def _take_step(c: StatsConfig, state: State, moved: State, metrics: dict) -> tuple[State, dict]:
  """Returns (the state that the step leaves, metrics): `moved`, or the old one if the step is skipped."""
  finite = jnp.isfinite(metrics["grad_norm"]) & jnp.isfinite(metrics["loss"]) & _all_finite(moved)
  taken = finite & (metrics["grad_norm"] <= state_lib.limit(c, state.stats))
  metrics |= {"update/nonfinite": 1.0 - finite, "update/skipped": 1.0 - taken}
  stats = state_lib.after_update(c, state.stats, metrics)
  metrics["update/nonfinite_steps"] = stats.nonfinite
  if c.target > 0:
    metrics["kl_scale"] = stats.kl_scale
  kept = jax.tree.map(partial(jnp.where, taken), moved, state)
  return kept._replace(stats=stats), metrics


def _all_finite(moved: State) -> jax.Array:
  """Returns True [] unless a parameter or a moment is not finite: a finite gradient may overflow a moment.

  The largest of them says so (NaN is the largest), in a quarter of the time of asking each of them on a CPU.
  """
  leaves = jax.tree.leaves((moved.params, moved.opt_state))
  numbers = [x for x in leaves if jnp.issubdtype(x.dtype, jnp.inexact)]
  return jnp.isfinite(jnp.stack([jnp.abs(x).max().astype(jnp.float32) for x in numbers])).all()
