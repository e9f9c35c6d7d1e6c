"""The record before the formula: Batch -> Batch.  Changes rewards, who is scored, which π_old.

Runs first, in the order of the names in the config.  A row that is no longer `valid` here leaves
its group's statistics and has A = 0; it still counts in the B of `constant`.
"""

import jax.numpy as jnp

from grpojax.batch import Array, Batch
from grpojax.objective import stats
from grpojax.objective.fields import field


def bypass(batch: Batch) -> Batch:
  """π_old := μ.  Two policies instead of three: the ratio is π_θ / μ, and no mismatch is left."""
  return batch._replace(old_logp=field(batch, "sampler_logp"))


def kl_k1(batch: Batch, *, beta) -> Batch:
  """R − beta Σ_t (log π_old − log π_ref): KL in the reward, before any baseline.  RLOO

  https://arxiv.org/abs/2402.14740; its gradient is that of KL(π_θ‖π_ref).
  """
  x = field(batch, "old_logp") - field(batch, "ref_logp")
  return batch._replace(reward=batch.reward - beta * jnp.where(batch.mask > 0, x, 0.0).sum(-1))


def finished_only(batch: Batch) -> Batch:
  """Completions that the budget cut leave mean and std; their tokens stay (`select.finished`)."""
  return batch._replace(valid=batch.valid & batch.ended)


def process_reward(batch: Batch, *, how="mean", weight=0.5) -> Batch:
  """weight · R + (1 − weight) · mean, last, min or product of the step scores.

  `extra["step_score"]`, `extra["step_end"]` [P, G, K], end −1 where there is no step.  A completion
  without steps is not scored.  The mixing weight has no source; choose it.
  """
  score, on = field(batch, "step_score"), field(batch, "step_end") >= 0
  last = jnp.take_along_axis(score, jnp.maximum(on.sum(-1, keepdims=True) - 1, 0), axis=-1)
  one = dict(
    mean=stats.mean(score, on, axis=-1)[..., 0],
    last=last[..., 0],
    min=jnp.where(on, score, jnp.inf).min(-1),
    product=jnp.where(on, score, 1.0).prod(-1),
  )
  if how not in one:
    raise ValueError(f"process_reward: how = '{how}'; it is one of {', '.join(one)}.")
  scored = on.any(-1)
  process = jnp.where(scored, one[how], 0.0)
  reward = weight * batch.reward + (1 - weight) * process
  return batch._replace(reward=reward, valid=batch.valid & scored)


def group_relative_overlong(batch: Batch, *, easy=0.7) -> Batch:
  """R − ½ clip((n − L) / L, 0, 1) for right answers of n tokens.  GTPO appendix D

  https://arxiv.org/abs/2508.04349.  L = max(midrange, mean) of the lengths: of the right answers if
  their share is ≥ easy, of all answers if they are the majority; other groups are left alone.  The
  paper does not publish `easy`.
  """
  length, right = batch.mask.sum(-1), batch.valid & (batch.accuracy > 0.5)
  share = stats.mean(right * 1.0, batch.valid, axis=1)
  limit = jnp.where(share >= easy, _limit(length, right), _limit(length, batch.valid))
  excess = jnp.clip((length - limit) / jnp.maximum(limit, 1), 0.0, 1.0)
  applies = right & ((share >= easy) | (share > 0.5))
  return batch._replace(reward=batch.reward - 0.5 * jnp.where(applies, excess, 0.0))


def _limit(length: Array, on: Array) -> Array:
  """max(midrange, mean) of each group's lengths, [P, 1]."""
  low = jnp.where(on, length, jnp.inf).min(1, keepdims=True)
  high = jnp.where(on, length, 0.0).max(1, keepdims=True)
  return jnp.maximum((low + high) / 2, stats.mean(length, on, axis=1))
