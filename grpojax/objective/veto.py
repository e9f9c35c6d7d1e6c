"""What is dropped because of where θ has moved?  logp, batch -> 0/1, [P, G, T] or [P, G, 1].

Runs inside `loss`, on one microbatch, so it may look along a completion and no further.  It has no
gradient; denominators and penalties stay.
"""

from grpojax.objective import stats
from grpojax.objective.fields import field
from grpojax.types import Array, Batch


def stale_failures(logp: Array, batch: Batch, *, delta) -> Array:
  """Drops A < 0 where the mean of log μ − log π_θ exceeds delta.  OPSM of DeepSeek-V3.2

  https://arxiv.org/abs/2512.02556: what the policy has left behind anyway is not unlearned again.
  """
  distance = stats.mean(field(batch, "sampler_logp") - logp, batch.mask > 0, axis=-1)
  return (batch.advantage >= 0) | (distance <= delta)


def worst_ratio(logp: Array, batch: Batch, *, low=1e-5) -> Array:
  """Drops completions with any π_θ / μ < low.  INTELLECT-3, https://arxiv.org/abs/2512.16144"""
  log_ratio = logp - field(batch, "sampler_logp")
  return ((batch.mask == 0) | (stats.exp(log_ratio) >= low)).all(-1, keepdims=True)
