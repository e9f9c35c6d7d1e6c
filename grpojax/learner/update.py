"""One optimiser step: (state, objective, batch) -> (state, metrics).  The only `jax.grad` of the project.

The denominator of the loss belongs to the whole optimiser batch: `objective.prepare` makes every
weight before the batch is cut, so microbatches and devices only add up.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import objective as objective_lib
from grpojax.learner import packing as packing_lib
from grpojax.learner import state as state_lib
from grpojax.learner.logprobs import grouped_logprobs, packed_logprobs, response_logprobs
from grpojax.learner.packing import Packing
from grpojax.learner.state import State, StatsConfig
from grpojax.models import Model, expert_cost, load_balance_loss
from grpojax.runtime import sharding
from grpojax.types import Batch


def warmup_constant(config: ConfigDict) -> optax.Schedule:
  """Learning rate by optimiser step: linear from 0 over `warmup_steps`, then constant."""
  if config.warmup_steps == 0:  # optax would stay at the 0 that warm-up starts from
    return optax.constant_schedule(config.learning_rate)
  return optax.schedules.warmup_constant_schedule(0.0, config.learning_rate, config.warmup_steps)


def make_optimizer(config: ConfigDict, schedule: optax.Schedule) -> optax.GradientTransformation:
  """AdamW behind a clip of the global gradient norm.  Norms and biases are not decayed."""
  matrix = lambda path, _: not path[-1].key.endswith(("norm", "bias"))
  matrices = lambda params: jax.tree.map_with_path(matrix, params)
  adamw = optax.adamw(schedule, config.b1, config.b2, weight_decay=config.weight_decay, mask=matrices)
  return optax.chain(optax.clip_by_global_norm(config.clip_norm), kept_in(config.state_dtype, adamw))


def kept_in(dtype: str, tx: optax.GradientTransformation) -> optax.GradientTransformation:
  """The same transformation, computed in float32, whose state lies in `dtype` between its steps."""

  def cast(tree, to):
    is_float = lambda x: jnp.issubdtype(x.dtype, jnp.floating)
    return jax.tree.map(lambda x: x.astype(to) if is_float(x) else x, tree)

  def update(grads, state, params):
    updates, state = tx.update(grads, cast(state, jnp.float32), params)
    return updates, cast(state, dtype)

  return optax.GradientTransformation(lambda params: cast(tx.init(params), dtype), update)


def state_shardings(model: Model, tx: optax.GradientTransformation, mesh: Mesh) -> State:
  """Where every leaf of a State lives: an optimiser moment beside the parameter of its path."""
  trained = model.trained
  params = sharding.param_shardings(mesh, trained.axes, trained.shapes, model.rules)
  everywhere = sharding.replicated(mesh)
  named = {_names(path): leaf for path, leaf in jax.tree.leaves_with_path(params)}

  def beside(path, _):
    names = _names(path)
    tails = (names[i:] for i in range(len(names)))
    return next((named[tail] for tail in tails if tail in named), everywhere)

  opt_state = jax.tree.map_with_path(beside, jax.eval_shape(tx.init, trained.shapes))
  stats = jax.tree.map(lambda _: everywhere, jax.eval_shape(state_lib.start))
  return State(params, opt_state, everywhere, stats)


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
  return State(params, tx.init(params), jnp.int32(0), state_lib.start())


def make_logp(model: Model, *, response_budget: int, temperature: float, chunk: int):
  """(params, tokens, prompt_length, routing=None, balance_mask=None) -> what `response_logprobs` gives."""

  def logp(params, tokens, prompt_length, routing=None, balance_mask=None):
    return response_logprobs(
      model.bind(params), tokens, prompt_length, response_budget, routing, balance_mask,
      temperature=temperature, chunk=chunk,
    )  # fmt: skip

  return logp


def make_grouped_logp(model: Model, *, response_budget: int, **how):
  """The same of `grouped_logprobs`; there is no routing."""
  return lambda params, tokens, prompt_length, *_: grouped_logprobs(
    model.bind(params), tokens, prompt_length, response_budget, **how
  )


def make_packed_logp(model: Model, **how):
  """(params, packing.Piece) -> what `packed_logprobs` gives, for a `temperature` and a `chunk`."""
  return lambda params, piece: packed_logprobs(model.bind(params), piece, **how)


def make_old_logp(logp_fn, record_routing: bool, packing: Packing | None = None):
  """(params, tokens, prompt_length, routing, balance_mask, packing_index) -> logp, entropy, routing,
  expert_cost: fields of a whole optimiser batch.  With a `packing`, logp_fn is that of `make_packed_logp`.

  The last two are None unless asked for.  What an expert costs is π_old's: a constant of the batch, as
  the loss's weights are, so that microbatches add up; at the first update it is the policy's own.
  """

  def old_logp(params, tokens, prompt_length, routing, balance_mask, packing_index):
    seen = tokens, prompt_length, routing, balance_mask
    if packing:
      logp, entropy, routed = _all_pieces(packing, logp_fn, params, *seen, packing_index)
    else:
      logp, entropy, routed = logp_fn(params, *seen)
    cost = None
    if balance_mask is not None:
      cost = expert_cost(routed.load)
      cost = jnp.broadcast_to(cost[None, None], (*prompt_length.shape, *cost.shape))
    return logp, entropy, routed.experts if record_routing else None, cost

  return old_logp


def make_update(
  logp_fn, tx: optax.GradientTransformation, schedule: optax.Schedule, microbatches: int,
  load_balance: float = 0.0, packing: Packing | None = None, grouped: bool = False,
  stats: StatsConfig = StatsConfig(),  # noqa: B008
):  # fmt: skip
  """Returns update(state, objective, batch, frozen=None) -> (state, metrics), a pure function to
  be jitted.

  `objective` is an argument, so that a sweep over its numbers compiles once, and so is `frozen`: what
  else the policy is made of when only adapters are trained.  Metrics are those of the policy the
  update started from, over the whole optimiser batch, with `grad_norm` before clipping.  Where loss or
  gradient is not finite, or the gradient's norm is a spike, the state stays as it is.
  `load_balance` is the coefficient of the loss of that name, where the batch has an `expert_cost`.
  With a `packing`, logp_fn is that of `make_packed_logp`, and as many pieces as are occupied are
  computed, instead of `microbatches`.  Without one, microbatches have prompts of their own, and tell the
  gradient's noise; `grouped` if logp_fn is that of `make_grouped_logp`.
  """

  def loss_fn(frozen, params, score, objective, batch: Batch):
    logp, entropy, routed = score(frozen | params if frozen else params)
    loss, metrics = objective_lib.loss(objective, logp, batch, entropy)
    logp = jax.lax.stop_gradient(logp)
    if batch.expert_cost is not None:
      balance = load_balance * load_balance_loss(routed.load, batch.expert_cost[0, 0])
      loss, metrics = loss + balance, metrics | {"loss/load_balance": balance}
    return loss, (metrics, logp)

  def update(state: State, objective, batch: Batch, frozen: dict | None = None):
    objective = objective_lib.scale_kl(objective, state.stats.kl_scale)
    padding = _padding(batch, packing, grouped)
    batch = objective_lib.prepare(objective, batch)
    gradient = partial(jax.value_and_grad(loss_fn, argnums=1, has_aux=True), frozen, state.params)
    if packing:
      grads, metrics, logp = _accumulate_packed(gradient, logp_fn, objective, batch, packing)
    else:
      grads, metrics, logp = _accumulate(gradient, logp_fn, objective, batch, microbatches)
    updates, opt_state = tx.update(grads, state.opt_state, state.params)
    metrics |= objective_lib.describe(batch, logp)
    metrics["update/padding"] = padding
    metrics["grad_norm"] = optax.global_norm(grads)
    squares = metrics.pop("grad_square", None)
    if squares is not None and microbatches > 1:
      metrics["grad_noise"] = _noise(squares, metrics["grad_norm"] ** 2, microbatches)
    metrics["learning_rate"] = jnp.asarray(schedule(state.updates), jnp.float32)
    finite = jnp.isfinite(metrics["grad_norm"]) & jnp.isfinite(metrics["loss"])
    taken = finite & (metrics["grad_norm"] <= state_lib.limit(stats, state.stats))
    metrics["update/nonfinite"], metrics["update/skipped"] = 1.0 - finite, 1.0 - taken
    new = state_lib.after_update(stats, state.stats, metrics)
    metrics["update/nonfinite_steps"] = new.nonfinite
    if stats.target > 0:
      metrics["kl_scale"] = new.kl_scale
    moved = State(optax.apply_updates(state.params, updates), opt_state, state.updates + 1, None)
    moved = jax.tree.map(partial(jnp.where, taken), moved, state._replace(stats=None))
    return moved._replace(stats=new), metrics

  return update


def _noise(squares, square_of_sum, n: int):
  """[] share of |g|² that is noise, tr Cov(g) / |g|², from the |g_i|² of n independent parts of g = Σ g_i.

  Unbiased in its numerator.  The gradient noise scale of https://arxiv.org/abs/1812.06162 is, for this batch
  and as far as |g|² is its mean, B times share / (1 - share).
  """
  variance = n / (n - 1) * (squares - square_of_sum / n)
  return variance / jnp.maximum(square_of_sum, 1e-30)


def _accumulate(gradient, logp_fn, objective, batch: Batch, microbatches: int):
  """Gradients, metrics, logp [P, G, T].  The first two are additive: their sum over microbatches is exact."""

  def one(piece):
    score = lambda policy: logp_fn(policy, *_seen(piece))
    (loss, (metrics, logp)), grads = gradient(score, objective, piece)
    return (grads, metrics | {"loss": loss, "grad_square": optax.global_norm(grads) ** 2}), logp

  if microbatches == 1:
    total, logp = one(batch)
    return *total, logp

  # Dealt like cards, not cut in blocks: each device keeps an equal share of every piece, so that
  # nothing moves between devices.
  deal = lambda x: x.reshape(-1, microbatches, *x.shape[1:]).swapaxes(0, 1)
  pieces = jax.tree.map(deal, batch)
  first = jax.tree.map(lambda x: x[0], pieces)

  def add(total, piece):
    new, logp = one(piece)
    return jax.tree.map(jnp.add, total, new), logp

  total, logp = jax.lax.scan(add, _zeros(one, first)[0], pieces)
  return *total, logp.swapaxes(0, 1).reshape(batch.mask.shape)


def _accumulate_packed(gradient, logp_fn, objective, batch: Batch, packing: Packing):
  """The same over pieces of packed rows.  A sequence that is not in a piece has no weight in its loss.

  Nothing is differentiated through the loop, so that it may run as often as pieces are occupied.
  """
  of_piece = packing_lib.by_piece(packing, logp_fn, *_seen(batch), batch.packing_index)

  def one(number):
    present = packing_lib.present(packing, batch.packing_index, batch.tokens.shape[-1] - 1, number)[..., None]
    keep = lambda x: jnp.where(present, x, 0.0)
    kept = {name: keep(getattr(batch, name)) for name in ("mask", "weight", "token_mean_weight")}
    part = batch._replace(**kept)
    score = lambda policy: of_piece(policy, number)
    (loss, (metrics, logp)), grads = gradient(score, objective, part)
    return grads, metrics | {"loss": loss}, keep(logp)

  add = lambda number, total: jax.tree.map(jnp.add, total, one(number))
  pieces = packing_lib.count(packing, batch.packing_index, batch.tokens.shape[-1] - 1)
  with jax.named_scope("pieces"):
    return jax.lax.fori_loop(0, pieces, add, _zeros(one, 0))


def _all_pieces(
  packing: Packing, logp_fn, params, tokens, prompt_length, routing, balance_mask, packing_index
):
  """logp, entropy, Routed of a whole batch from pieces of packed rows; no routing where nothing is read."""
  seen = tokens, prompt_length, routing, balance_mask
  of_piece = packing_lib.by_piece(packing, logp_fn, *seen, packing_index)
  columns = tokens.shape[-1] - 1

  def add(number, total):
    present = packing_lib.present(packing, packing_index, columns, number)
    keep = lambda new, old: jnp.where(present.reshape(*present.shape, *[1] * (new.ndim - 2)), new, old)
    logp, entropy, routed = of_piece(params, number)
    old_logp, old_entropy, old = total
    if routed is not None:
      load = None if routed.load is None else old.load + routed.load
      routed = routed._replace(experts=keep(routed.experts, old.experts), load=load)
    return keep(logp, old_logp), keep(entropy, old_entropy), routed

  with jax.named_scope("pieces"):
    pieces = packing_lib.count(packing, packing_index, columns)
    return jax.lax.fori_loop(0, pieces, add, _zeros(of_piece, params, 0))


def _seen(batch: Batch):
  """What of a batch a policy reads."""
  return batch.tokens, batch.prompt_length, batch.routing, batch.balance_mask


def _padding(batch: Batch, packing: Packing | None, grouped: bool):
  """[] share of the columns that the update computes which no token of a sequence is in."""
  (P, G, S), T = batch.tokens.shape, batch.mask.shape[-1]
  length = jnp.maximum(batch.length, 1).astype(jnp.float32)
  if grouped:  # a prompt's last token begins each response
    return 1 - (batch.prompt_length[:, 0].sum() - P + length.sum()) / (P * (S - T - 1 + G * T))
  columns = P * G * (S - 1)
  if packing:
    pieces = packing_lib.count(packing, batch.packing_index, S - 1)
    columns = pieces * (packing.shards * packing.rows * (S - 1))
  return 1 - (batch.prompt_length + length - 1).sum() / columns


def _zeros(fn, *args):
  """Zeros, shaped as what fn(*args) returns."""
  return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(fn, *args))
