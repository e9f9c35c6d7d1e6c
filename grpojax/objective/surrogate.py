"""What is a token worth, off-policy?  log_ratio, logp, advantage [] -> gain [], to be maximised.

A function here sees one token.  Law: on-policy its derivative, with log_ratio and logp moving
together, is the advantage; every surrogate is the policy gradient to first order.
Below, r = exp(log_ratio) and sg is stop_gradient.
"""

import jax
import jax.numpy as jnp

from grpojax.types import Array


def reinforce(log_ratio: Array, logp: Array, advantage: Array) -> Array:
  """A · log π: no ratio, no trust region.  RLOO, https://arxiv.org/abs/2402.14740"""
  return advantage * logp


def ppo_clip(log_ratio: Array, logp: Array, advantage: Array, *, low=0.2, high=0.2) -> Array:
  """min(r A, clip(r, 1 − low, 1 + high) A).  PPO, https://arxiv.org/abs/1707.06347

  high > low is the clip-higher of DAPO, https://arxiv.org/abs/2503.14476
  """
  r = jnp.exp(log_ratio)
  return jnp.minimum(r * advantage, jnp.clip(r, 1 - low, 1 + high) * advantage)


def dual_clip(
  log_ratio: Array, logp: Array, advantage: Array, *, low=0.2, high=0.2, floor=3.0
) -> Array:
  """`ppo_clip`, but not below floor · A for A < 0.  https://arxiv.org/abs/1912.09729, floor > 1"""
  gain = ppo_clip(log_ratio, logp, advantage, low=low, high=high)
  return jnp.where(advantage < 0, jnp.maximum(gain, floor * advantage), gain)


def linear(log_ratio: Array, logp: Array, advantage: Array) -> Array:
  """r A: nothing is clipped here.  GMPO, whose ratio is, https://arxiv.org/abs/2507.20673"""
  return jnp.exp(log_ratio) * advantage


def cispo(log_ratio: Array, logp: Array, advantage: Array, *, w_max=5.0, w_min=0.0) -> Array:
  """sg[clip(r, w_min, w_max)] A log π: clips the weight, never the gradient.  CISPO

  https://arxiv.org/abs/2506.13585.  Bounds are absolute, not 1 + ε; the paper publishes none, 5 is
  ScaleRL's.  The value follows log π and is not comparable between steps.
  """
  weight = jax.lax.stop_gradient(jnp.clip(jnp.exp(log_ratio), w_min, w_max))
  return weight * advantage * logp


def sapo(log_ratio: Array, logp: Array, advantage: Array, *, tau_pos=1.0, tau_neg=1.05) -> Array:
  """A · 4/τ · sigmoid(τ (r − 1)), τ by the sign of A: a soft gate.  https://arxiv.org/abs/2511.20347"""
  tau = jnp.where(advantage > 0, tau_pos, tau_neg)
  return advantage * 4 / tau * jax.nn.sigmoid(tau * (jnp.exp(log_ratio) - 1))


def ratio_band(log_ratio: Array, logp: Array, advantage: Array, *, low=0.5, high=5.0) -> Array:
  """r A where low ≤ r ≤ high, else 0: IcePop with two policies, after `shape.bypass`.  prime-rl"""
  r = jnp.exp(log_ratio)
  return jnp.where((r >= low) & (r <= high), r * advantage, 0.0)
