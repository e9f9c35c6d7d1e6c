"""What else is a token's loss, on tokens of its own?  logp, batch -> cost [P, G, T], with gradient.

A component has a stream, which says which tokens it counts (stream.py), and a denominator of its own: its
loss is coef times the mean over the stream, and never changes what a token of another part weighs.  Mismatch
weights, `select` and `aggregate` are the policy term's; they do not touch it.  prime-rl, docs/algorithms.md

μ is the sampler's policy, π_T the teacher's (config.teacher), sg stop_gradient.
"""

import jax
import jax.numpy as jnp

from grpojax.objective import stats
from grpojax.objective import surrogate as surrogate_lib
from grpojax.objective.fields import field
from grpojax.types import Array, Batch


def ce(logp: Array, batch: Batch) -> Array:
  """−log π: cross-entropy.  SFT if it is all of the loss

  Over the stream "right" it is the positive-example loss of VAPO, https://arxiv.org/abs/2504.05118, with coef
  0.1; over "observations" prime-rl's echo: the policy learns to predict what its actions bring about.
  """
  return -logp


def ref_kl(logp: Array, batch: Batch, *, low=0.2, tau=1e-3) -> Array:
  """−sg[log π_T − log π] q while π − μ ≥ −low, and tau log² q always; q = π / μ.  prime-rl's distillation

  On-policy its gradient is that of KL(π‖π_T), token by token.
  """
  old = field(batch, "sampler_logp")
  log_ratio = logp - old
  gap = jax.lax.stop_gradient(field(batch, "teacher_logp") - logp)
  inside = jnp.exp(logp) - jnp.exp(old) >= -low
  return tau * log_ratio**2 - jnp.where(inside, gap * stats.exp(log_ratio), 0.0)


def gkd(logp: Array, batch: Batch) -> Array:
  """The divergence of π and π_T over the whole vocabulary that config.teacher.divergence names.  GKD

  https://arxiv.org/abs/2306.13649, on the policy's own completions alone.
  """
  return field(batch, "divergence")


def opd(logp: Array, batch: Batch, *, low=0.2, high=0.2) -> Array:
  """−`ppo_clip` with A = sg[log π_T − log π], the gap of the policy as it is.  verl's distillation

  `rescale.opd` has the gap of the policy that sampled, as NeMo RL, slime and TRL do.
  """
  gap = jax.lax.stop_gradient(field(batch, "teacher_logp") - logp)
  return -surrogate_lib.ppo_clip(logp - batch.old_logp, logp, gap, low=low, high=high)
