"""How far has a completion moved?  delta, mask, advantage [T] -> log-ratio [T].

delta = log π_θ − log π_old, 0 behind the mask.  Laws: 0 on-policy, and blind to what is masked.
"""

import jax
import jax.numpy as jnp

from grpojax.objective import stats
from grpojax.types import Array


def token(delta: Array, mask: Array, advantage: Array) -> Array:
  """delta: each token for itself.  PPO, https://arxiv.org/abs/1707.06347"""
  return delta


def sequence(delta: Array, mask: Array, advantage: Array) -> Array:
  """Mean of delta: one length-normalised ratio per completion.  GSPO, https://arxiv.org/abs/2507.18071"""
  return jnp.broadcast_to(stats.mean(delta, mask > 0), delta.shape)


def sequence_token(delta: Array, mask: Array, advantage: Array) -> Array:
  """sg[mean of delta − delta] + delta: the sequence's value, the token's gradient.  GSPO-token"""
  return jax.lax.stop_gradient(stats.mean(delta, mask > 0) - delta) + delta


def sequence_product(delta: Array, mask: Array, advantage: Array) -> Array:
  """Sum of delta: the exact ratio of the completions.  TRL's RLOO, https://arxiv.org/abs/2402.14740"""
  return jnp.broadcast_to(stats.total(delta, mask > 0), delta.shape)


def arithmetic(delta: Array, mask: Array, advantage: Array) -> Array:
  """log of the mean of exp(delta).  GRPO-S, https://arxiv.org/abs/2508.04349"""
  on = mask > 0
  mean = stats.mean(stats.exp(delta), on)
  return jnp.broadcast_to(jnp.log(jnp.where(on.any(), mean, 1.0)), delta.shape)


def geometric(delta: Array, mask: Array, advantage: Array, *, low=0.4, high=0.4) -> Array:
  """Mean of delta, each first clipped on the side its advantage pulls to.  GMPO

  A > 0: at most high; else at least −low, in log space.  https://arxiv.org/abs/2507.20673
  """
  clipped = jnp.where(advantage > 0, jnp.minimum(delta, high), jnp.maximum(delta, -low))
  return jnp.broadcast_to(stats.mean(clipped, mask > 0), delta.shape)
