"""A -> A over the whole optimiser batch.  Sees advantages [P, G] or [P, G, T] and the batch.

Returns either shape.  The batch has its final mask: tokens that `select` dropped count no more.
"""

import jax
import jax.numpy as jnp

from grpojax.objective import advantage as advantage_lib
from grpojax.objective import stats
from grpojax.types import Array, Batch


def identity(advantage: Array, batch: Batch) -> Array:
  """Unchanged."""
  return advantage


def whiten(advantage: Array, batch: Batch, *, ddof=1, eps=1e-8) -> Array:
  """(A − mean) / sqrt(variance + eps) over the tokens of valid rows.  REINFORCE++

  https://arxiv.org/abs/2501.03262.  Each token is a sample, so long completions count more.  ddof 1 as verl
  and slime; OpenRLHF 0.
  """
  if advantage.ndim == 2:
    advantage = jnp.broadcast_to(advantage[..., None], batch.mask.shape)
  on = (batch.mask > 0) & batch.valid[..., None]
  scale = jnp.sqrt(stats.std(advantage, on, ddof=ddof) ** 2 + eps)
  white = (advantage - stats.mean(advantage, on)) / scale
  return jnp.where(stats.spread(advantage, on) > 0, white, 0.0)


def batch_std(advantage: Array, batch: Batch, *, ddof=1, eps=1e-4) -> Array:
  """A / (std of all rewards + eps).  Lite PPO, https://arxiv.org/abs/2508.08221, eps as TRL"""
  return advantage / (stats.std(batch.reward, batch.valid, ddof=ddof) + eps)


def batch_zscore(advantage: Array, batch: Batch, *, ddof=1, eps=1e-8) -> Array:
  """(A − mean) / (std + eps) over completions, [P, G].  SPO, https://arxiv.org/abs/2509.13232"""
  if advantage.ndim != 2:
    raise ValueError(
      "config.objective.rescale: batch_zscore takes one advantage per completion, and "
      "config.objective.advantage.fn gives one per token; use whiten."
    )
  scale = stats.std(advantage, batch.valid, ddof=ddof) + eps
  centered = advantage - stats.mean(advantage, batch.valid)
  return jnp.where(stats.spread(advantage, batch.valid) > 0, centered / scale, 0.0)


def gtpo_over_batch(
  advantage: Array, batch: Batch, *, alpha1=1.0, alpha2=0.1, low=1e-3, high=jnp.inf
) -> Array:
  """`gtpo` with the whole batch as its group: entropies of different prompts compared, [P, G, T].

  The paper says that its code does this.  There is no baseline per prompt then.
  """
  flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)
  shaped = advantage_lib.gtpo(flat, alpha1=alpha1, alpha2=alpha2, low=low, high=high)
  return shaped.reshape(batch.mask.shape)
