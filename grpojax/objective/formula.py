"""prepare and loss: everything that knows no θ, and everything that does."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp

from grpojax.objective import stats, terms
from grpojax.objective.terms import Component, Preference
from grpojax.types import Array, Batch


class Correction(NamedTuple):
  """A mismatch weight and its switches, which may be traced booleans."""

  renormalize: bool  # rejected tokens also leave the mask: policy term, penalties, denominators
  batch_normalize: bool  # divide by the mean over the batch: of tokens, or of rows if [P, G, 1]
  fn: Callable  # batch -> factor [P, G, T] or [P, G, 1]


class Objective(NamedTuple):
  """One choice per slot.  A pytree: numbers are leaves, so that a sweep over them compiles once."""

  advantage: Callable
  rescale: Callable
  ratio: Callable
  surrogate: Callable
  aggregate: Callable
  select: tuple[Callable, ...] = ()
  correct: tuple[Correction, ...] = ()
  penalty: tuple[tuple[float, Callable], ...] = ()
  shape: tuple[Callable, ...] = ()
  veto: tuple[Callable, ...] = ()
  batch_veto: tuple[Callable, ...] = ()
  component: tuple[Component, ...] = ()
  preference: tuple[Preference, ...] = ()


def reads_batch_logp(objective: Objective) -> bool:
  """Returns True if `prepare` needs log π_θ of the whole optimiser batch."""
  return bool(objective.batch_veto or objective.preference)


def prepare(objective: Objective, batch: Batch, logp: Array | None = None) -> Batch:
  """Fills mask, advantage, weight, token_mean_weight and is_weight: once a step, on the whole batch.

  Plain sums over the arrays are sums over the optimiser batch, also under `jit` on a mesh.  Nothing
  here depends on θ but `batch_veto` and `preference`, for which logp [P, G, T] is of π_θ.  Raises ValueError
  while tracing where a field is missing.
  """
  batch = jax.lax.stop_gradient(_clean(batch))
  batch = batch._replace(component_weight=terms.weights(objective.component, batch))
  if objective.preference:
    batch = batch._replace(preference=terms.tangents(objective.preference, _known(logp, batch), batch))
  valid, num_tokens = batch.valid, batch.mask.sum(-1)
  for change in objective.shape:
    before, batch = batch.old_logp, change(batch)
    if batch.old_logp is not before:  # another π_old, which is known
      batch = batch._replace(on_policy=None)
  advantage = _of_valid(jax.vmap(objective.advantage)(batch), batch)  # [P, G] or [P, G, T]

  mask, trust = batch.mask, None
  for keep in objective.select:
    mask = mask * keep(batch)
  for correction in objective.correct:
    factor = _factor(correction, batch)
    mask = jnp.where(correction.renormalize & (factor == 0), 0.0, mask)
    trust = factor * (1.0 if trust is None else trust)
  batch = batch._replace(mask=mask)

  advantage = _of_valid(objective.rescale(advantage, batch), batch)  # which may subtract a mean
  batch = batch._replace(
    valid=valid,
    advantage=jnp.where(mask > 0, _like(advantage, mask), 0.0),
    weight=objective.aggregate(batch._replace(valid=valid)),
    token_mean_weight=mask / jnp.maximum(mask.sum(), 1),
    is_weight=None if trust is None else jnp.broadcast_to(trust, mask.shape),
    num_tokens=num_tokens,
  )
  return _of_kept(objective, batch, logp) if objective.batch_veto else batch


def loss(objective: Objective, logp: Array, batch: Batch, entropy: Array | None = None):
  """Returns (loss, metrics), scalars in logp's dtype; logp [P, G, T] is of π_θ, the batch prepared.

  `entropy` [P, G, T] is π_θ's, in nats.  Without an old_logp the batch is strictly on-policy.  Loss and
  metrics are sums with weights made by `prepare`, so those of microbatches add up to those of the
  batch.  Metrics are means over tokens.
  """
  everywhere, batch = (logp, batch), with_old_logp(batch, logp)
  on = batch.mask > 0
  logp = jnp.where(on, logp, 0.0)  # garbage behind the mask stops here, before any exp
  entropy = None if entropy is None else jnp.where(on, entropy, 0.0)

  trust = 1.0 if batch.is_weight is None else batch.is_weight
  for keep in objective.veto:
    trust = trust * jax.lax.stop_gradient(keep(logp, batch))
  total = -(batch.weight * trust * _gain(objective, logp, batch)).sum()
  metrics = {"loss/policy": total}
  if batch.is_weight is not None or objective.veto:
    metrics["trust/zero_mean"] = (batch.token_mean_weight * (trust == 0)).sum()
  for beta, penalty in objective.penalty:
    cost = beta * (batch.weight * penalty(logp, batch, entropy)).sum()
    key = f"loss/{name(penalty)}"
    metrics[key] = metrics.get(key, 0.0) + cost
    total = total + cost
  for key, cost in _own_terms(objective, *everywhere):
    metrics[key] = metrics.get(key, 0.0) + cost
    total = total + cost
  return total, jax.lax.stop_gradient(metrics | _watch(objective, logp, batch, entropy))


def with_old_logp(batch: Batch, logp: Array) -> Batch:
  """Returns the batch with log π_old; where it has none yet, π_old is π_θ: `logp`, without gradient.

  With a `prox_share` it lies between those of the sampler and of π_θ.
  """
  logp = jax.lax.stop_gradient(jnp.where(batch.mask > 0, logp, 0.0))
  if batch.prox_share is not None:
    logp = batch.sampler_logp + batch.prox_share * (logp - batch.sampler_logp)
  elif batch.old_logp is not None and batch.on_policy is not None:
    logp = jnp.where(batch.on_policy[..., None], logp, batch.old_logp)
  elif batch.old_logp is not None:
    logp = batch.old_logp
  return batch._replace(old_logp=logp, on_policy=None, prox_share=None)


def name(fn: Callable) -> str:
  """Returns the name of a slot's function, bound or not."""
  while not hasattr(fn, "__name__"):
    fn = getattr(fn, "fn", None) or fn.func
  return fn.__name__


def _gain(objective: Objective, logp: Array, batch: Batch) -> Array:
  """Returns J [P, G, T]: the ratio sees a completion, the surrogate a token."""
  delta = jnp.where(batch.mask > 0, logp - batch.old_logp, 0.0)
  log_ratio = jax.vmap(jax.vmap(objective.ratio))(delta, batch.mask, batch.advantage)
  log_ratio = jnp.clip(log_ratio, -stats.EXP_LIMIT, stats.EXP_LIMIT)
  return jax.vmap(jax.vmap(jax.vmap(objective.surrogate)))(log_ratio, logp, batch.advantage)


def _watch(objective: Objective, logp: Array, batch: Batch, entropy: Array | None) -> dict:
  """Returns means over tokens.  Clipped tokens have no gradient although A is not 0, whatever the rule."""
  logp, on = jax.lax.stop_gradient(logp), batch.mask > 0
  slope = jax.grad(lambda x: jnp.where(on, _gain(objective, x, batch), 0.0).sum())(logp)
  clipped = on & (batch.advantage != 0) & (slope == 0)
  token_mean = lambda x: (batch.token_mean_weight * x).sum()
  k3 = lambda x: stats.expm1(x) - x
  low, high = clipped & (batch.advantage < 0), clipped & (batch.advantage > 0)
  probability = stats.exp(batch.old_logp)
  metrics = {
    "clip_ratio/low_mean": token_mean(low),
    "clip_ratio/high_mean": token_mean(high),
    # Probability mass under π_old: divided by the share above, the mean probability of a clipped token.
    "clip_ratio/low_mass": token_mean(jnp.where(low, probability, 0.0)),
    "clip_ratio/high_mass": token_mean(jnp.where(high, probability, 0.0)),
    "clip_ratio/region_mean": token_mean(clipped),
    "ppo_kl": token_mean(k3(logp - batch.old_logp)),  # KL(π_old‖π_θ), samples from π_old
  }
  if entropy is not None:
    metrics["entropy"] = token_mean(entropy)
  if batch.ref_logp is not None:
    metrics["kl"] = token_mean(k3(batch.ref_logp - logp))  # KL(π_θ‖π_ref)
  return metrics


def _clean(batch: Batch) -> Batch:
  """Takes invalid rows out of the mask, and sets what is behind the mask to 0."""
  mask = jnp.where(batch.valid[..., None], batch.mask, 0.0)
  behind = lambda x: None if x is None else jnp.where(mask > 0, x, 0.0)
  return batch._replace(
    mask=mask,
    reward=jnp.where(batch.valid, batch.reward, 0.0),
    accuracy=jnp.where(batch.valid, batch.accuracy, 0.0),
    sampler_logp=behind(batch.sampler_logp),
    old_logp=behind(batch.old_logp),
    ref_logp=behind(batch.ref_logp),
    entropy=behind(batch.entropy),
    teacher_logp=behind(batch.teacher_logp),
  )


def _of_valid(advantage: Array, batch: Batch) -> Array:
  """Returns the advantages, 0 in rows that are not valid."""
  return jnp.where(_like(batch.valid, advantage), advantage, 0.0)


def _known(logp: Array | None, batch: Batch) -> Array:
  """Returns log π_θ [P, G, T] of the whole batch, without gradient and 0 behind the mask."""
  if logp is None:
    raise ValueError(
      "config.objective.batch_veto and config.objective.preference need the policy's log-probs of the whole "
      "batch: pass them to prepare."
    )
  return jax.lax.stop_gradient(jnp.where(batch.mask > 0, logp, 0.0))


def _own_terms(objective: Objective, logp: Array, batch: Batch) -> Iterator[tuple[str, Array]]:
  """Yields (metric, loss []) of the terms whose tokens are not those of the policy term."""
  for component, weight in zip(objective.component, batch.component_weight or (), strict=True):
    seen = with_old_logp(batch._replace(mask=jnp.where(weight != 0, 1.0, 0.0)), logp)
    yield f"loss/{name(component.fn)}", terms.cost(component, weight, logp, seen)
  for preference, tangent in zip(objective.preference, batch.preference or (), strict=True):
    yield f"loss/{name(preference.fn)}", terms.along(tangent, logp)


def _of_kept(objective: Objective, batch: Batch, logp: Array | None) -> Batch:
  """Returns the batch whose mismatch weight is 0 where `batch_veto` drops a token."""
  logp = _known(logp, batch)
  seen = with_old_logp(batch, logp)
  trust = jnp.ones_like(batch.mask) if batch.is_weight is None else batch.is_weight
  for keep in objective.batch_veto:
    trust = trust * keep(logp, seen)
  return batch._replace(is_weight=trust)


def _factor(correction: Correction, batch: Batch) -> Array:
  """Returns the mismatch weight, 0 behind the mask, divided by its mean where the config asks for it."""
  factor = correction.fn(batch)
  on = batch.mask > 0
  counted = on.any(-1, keepdims=True) if factor.shape[-1] == 1 else on
  factor = jnp.where(counted, factor, 0.0)
  average = factor.sum() / jnp.maximum(counted.sum(), 1)
  usable = correction.batch_normalize & (average > 0)
  return factor / jnp.where(usable, average, 1.0)


def _like(x: Array, target: Array) -> Array:
  """Repeats row values [P, G] over the tokens of `target` [P, G, T]; returns [P, G, T] as it is."""
  return x if x.ndim == target.ndim else jnp.broadcast_to(x[..., None], target.shape)
