"""A -> A over the whole optimiser batch.  Sees advantages [P, G] or [P, G, T] and the batch.

Returns either shape.  The batch has its final mask: tokens that `select` dropped count no more.
"""

import jax
import jax.numpy as jnp

from grpojax.objective import advantage as advantage_lib
from grpojax.objective import stats
from grpojax.objective.fields import field
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


def rms(advantage: Array, batch: Batch, *, eps=1e-4) -> Array:
  """A / (sqrt(v) + eps), v a moving mean of (R − group's mean)² over groups with contrast.  ScaleRL

  https://arxiv.org/abs/2510.13786, eps as TRL; for `advantage.center`.  `extra["moment"]` [P, G] is v; before
  the first group with contrast it is NaN, and advantages are 0.
  """
  moment = field(batch, "moment")
  moment = moment if advantage.ndim == 2 else moment[..., None]
  known = moment > 0
  return jnp.where(known, advantage / (jnp.sqrt(jnp.where(known, moment, 1.0)) + eps), 0.0)


def gpg(advantage: Array, batch: Batch) -> Array:
  """A · rows / rows with a reward other than 0: A / accuracy for rewards of 0 and 1.  GPG as verl runs it

  https://arxiv.org/abs/2504.02546.  Rewards may not be shifted: of −1 and 1 all count.
  """
  rewarded = (batch.valid & (batch.reward != 0)).sum()
  return advantage * (batch.valid.sum() / jnp.maximum(rewarded, 1))


def opd(advantage: Array, batch: Batch, *, scale=1.0, student="old", gamma=0.0) -> Array:
  """A + scale · (log π_T − log π_S), each token its own: on-policy distillation, [P, G, T]

  π_T is the teacher (config.teacher), π_S the policy that sampled: π_old (NeMo RL, slime), or with student
  "sampler" μ (TRL).  On-policy the second part is REINFORCE on −KL(π_S‖π_T).  With `advantage.none` it is
  all; on top of a group's advantage it is slime's.  gamma > 0: times 1 + gamma (1 − share of the completion's
  Σ |gap| before the token), TRL's iw_opd, which has 0.5.
  """
  if student not in ("old", "sampler"):
    raise ValueError(f"config.objective.rescale.student = '{student}'; it is 'old' or 'sampler'.")
  old = field(batch, dict(old="old_logp", sampler="sampler_logp")[student])
  gap = jnp.where(batch.mask > 0, field(batch, "teacher_logp") - old, 0.0)
  size = jnp.abs(gap)
  before = (size.cumsum(-1) - size) / jnp.maximum(size.sum(-1, keepdims=True), 1e-8)
  advantage = advantage if advantage.ndim == gap.ndim else advantage[..., None]
  return advantage + scale * gap * (1 + gamma * (1 - before))


def gtpo_over_batch(
  advantage: Array, batch: Batch, *, alpha1=1.0, alpha2=0.1, low=1e-3, high=jnp.inf
) -> Array:
  """`gtpo` with the whole batch as its group: entropies of different prompts compared, [P, G, T].

  The paper says that its code does this.  There is no baseline per prompt then.
  """
  flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)
  shaped = advantage_lib.gtpo(flat, alpha1=alpha1, alpha2=alpha2, low=low, high=high)
  return shaped.reshape(batch.mask.shape)
