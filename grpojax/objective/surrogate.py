"""What is a token worth, off-policy?  log_ratio, logp, advantage [] -> gain [], to be maximised.

A function here sees one token.  Law: on-policy its derivative, with log_ratio and logp moving
together, is the advantage; every surrogate is the policy gradient to first order.
Below, r = exp(log_ratio) and sg is stop_gradient.
"""

import jax.numpy as jnp

from grpojax.batch import Array


def reinforce(log_ratio: Array, logp: Array, advantage: Array) -> Array:
  """A · log π: no ratio, no trust region.  RLOO, https://arxiv.org/abs/2402.14740"""
  return advantage * logp


def ppo_clip(log_ratio: Array, logp: Array, advantage: Array, *, low=0.2, high=0.2) -> Array:
  """min(r A, clip(r, 1 − low, 1 + high) A).  PPO, https://arxiv.org/abs/1707.06347

  high > low is the clip-higher of DAPO, https://arxiv.org/abs/2503.14476
  """
  r = jnp.exp(log_ratio)
  return jnp.minimum(r * advantage, jnp.clip(r, 1 - low, 1 + high) * advantage)
