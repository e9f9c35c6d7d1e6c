"""Metrics of a prepared batch, before the update."""

import jax.numpy as jnp

from grpojax.objective import rescale, stats, terms
from grpojax.objective.formula import with_old_logp
from grpojax.types import Array, Batch


def describe(batch: Batch, logp: Array) -> dict[str, Array]:
  """Returns scalar metrics of a whole prepared batch; logp [P, G, T] is the policy's before the update."""
  old = with_old_logp(batch, logp)
  return _groups(batch) | _tokens(batch) | _mismatch(old) | _distance(old) | _pairs(batch, logp)


def group_advantages(objective, group: Batch) -> Array | None:
  """Returns A [G] of one group, a Batch without its prompt axis, before `select` drops any of its tokens.

  Where tokens differ it is their mean.  None where A takes more than the group: other rewards, the whole
  batch, log-probs, or a baseline.
  """
  advantage = _advantage(objective, group)
  if advantage is None:
    return None
  if advantage.ndim == 2:
    advantage = stats.mean(advantage, group.mask > 0, axis=1)[:, 0]
  return jnp.where(group.valid, advantage, 0.0)


def turn_advantages(objective, group: Batch) -> Array | None:
  """Returns A [G, U] of the turns of one group, each the mean over its tokens; 0 of turns not played.

  None as in `group_advantages`, and of completions without turns.
  """
  advantage = _advantage(objective, group)
  if advantage is None or group.turns is None:
    return None
  if advantage.ndim == 1:
    advantage = jnp.broadcast_to(advantage[:, None], group.mask.shape)
  number = jnp.arange(group.turns.reward.shape[-1])
  own = (group.turns.index[:, None, :] == number[None, :, None]) & (group.mask > 0)[:, None, :]  # [G, U, T]
  found = stats.mean(jnp.broadcast_to(advantage[:, None, :], own.shape), own, axis=2)[..., 0]
  return jnp.where(group.valid[:, None], found, 0.0)


def _advantage(objective, group: Batch) -> Array | None:
  """Returns A [G] or [G, T] of one group; None where A takes more than the group."""
  if objective.shape or objective.rescale.func.fn is not rescale.identity:
    return None
  try:
    return objective.advantage(group)
  except Exception:  # it reads a field that only the learner has, and that is None here
    return None


def _groups(batch: Batch) -> dict[str, Array]:
  """Returns the shares of groups without contrast, which teach nothing: all wrong, and all right."""
  valid, accuracy = batch.valid, batch.accuracy
  group = valid.any(1)
  flat = group & (stats.spread(batch.reward, valid, axis=1)[:, 0] == 0)
  wrong = jnp.where(valid, accuracy, 0.0).max(1) <= 0
  right = jnp.where(valid, accuracy, 1.0).min(1) >= 1
  share = lambda which: which.sum() / jnp.maximum(group.sum(), 1)
  return {
    "frac_reward_zero_std": share(flat),
    "frac_reward_zero_std/all_wrong": share(flat & wrong),
    "frac_reward_zero_std/all_right": share(flat & right),
    "rows/invalid": (~valid).sum(),
  }


def _tokens(batch: Batch) -> dict[str, Array]:
  """Returns statistics of advantages over tokens, and the share of tokens after `select` and rejection."""
  on = batch.mask > 0
  any_on = on.any()
  return {
    "advantage/mean": stats.mean(batch.advantage, on),
    "advantage/min": jnp.where(any_on, jnp.where(on, batch.advantage, jnp.inf).min(), 0.0),
    "advantage/max": jnp.where(any_on, jnp.where(on, batch.advantage, -jnp.inf).max(), 0.0),
    "select/keep_rate": batch.mask.sum() / jnp.maximum(batch.num_tokens.sum(), 1),
  }


def _distance(batch: Batch) -> dict[str, Array]:
  """Returns KL(π_old‖π_T) in nats per token, on samples of the sampler, where there is a teacher."""
  if batch.teacher_logp is None:
    return {}
  return {"teacher_kl": stats.mean(batch.old_logp - batch.teacher_logp, batch.mask > 0)}


def _pairs(batch: Batch, logp: Array) -> dict[str, Array]:
  """Returns how far the chosen completion of a pair is before the rejected one, means over pairs.

  s is Σ log π − log π_ref of a completion, in nats; without a reference its mean log π of a token.
  """
  if not batch.preference:
    return {}
  on = batch.mask > 0
  rows, paired = terms.pairs(batch)
  length = jnp.maximum(on.sum(-1), 1)
  gap = logp if batch.ref_logp is None else logp - batch.ref_logp
  s = jnp.where(on, gap, 0.0).sum(-1) / (length if batch.ref_logp is None else 1)
  chosen, rejected = jnp.take_along_axis(s, rows, axis=1).T
  mean = lambda x: stats.mean(x, paired)
  return {
    "preference/accuracy": mean((chosen > rejected).astype(s.dtype)),
    "preference/margin": mean(chosen - rejected),
    "preference/chosen": mean(chosen),
    "preference/rejected": mean(rejected),
  }


def _mismatch(batch: Batch) -> dict[str, Array]:
  """Compares sampler and learner on the same parameters: their log-probs, ρ = π_old / μ, and its ESS."""
  if batch.sampler_logp is None:
    return {}
  on = batch.mask > 0
  delta = batch.old_logp - batch.sampler_logp
  rho = stats.exp(delta)
  square_of_sum = stats.total(rho, on) ** 2
  sum_of_squares = stats.total(rho**2, on) * jnp.maximum(on.sum(), 1)
  metrics = {
    "sampling/sampling_logp_difference/mean": stats.mean(jnp.abs(delta), on),
    "sampling/sampling_logp_difference/max": jnp.where(on, jnp.abs(delta), 0.0).max(),
    "sampling/importance_sampling_ratio/mean": stats.mean(rho, on),
    "sampling/importance_sampling_ratio/min": jnp.where(on, rho, jnp.inf).min(),
    "sampling/importance_sampling_ratio/max": jnp.where(on, rho, 0.0).max(),
    # Share of the tokens that are as good as unweighted ones, (Σρ)² / (N Σρ²).
    "sampling/effective_sample_size": square_of_sum / jnp.maximum(sum_of_squares, 1e-30),
  }
  return {key: jnp.where(on.any(), value, 0.0) for key, value in metrics.items()}
