"""What else does the policy pay for?  logp, batch, entropy -> cost [P, G, T], with gradient.

Weighted like the policy term and multiplied by its `beta`; mismatch weights do not touch it.
x = log π_θ − log π_ref.  Expected slopes, on samples of π_θ (tests enumerate them):

    k1                             0, useless in a loss
    k2, k3_plus, both _corrected   ∇ KL(π_θ‖π_ref)
    k3                             ∇ KL(π_ref‖π_θ), the other one; equal to first order
"""

import jax
import jax.numpy as jnp

from grpojax.objective import stats
from grpojax.objective.fields import field
from grpojax.types import Array, Batch


def kl_k1(logp: Array, batch: Batch, entropy: Array | None) -> Array:
  """x.  Unbiased value; as a loss its expected gradient is 0 (use shape.kl_k1 instead)."""
  return _x(logp, batch)


def kl_k2(logp: Array, batch: Batch, entropy: Array | None) -> Array:
  """½ x².  REINFORCE++-baseline, https://arxiv.org/abs/2501.03262"""
  return 0.5 * _x(logp, batch) ** 2


def kl_k3(logp: Array, batch: Batch, entropy: Array | None) -> Array:
  """e^−x + x − 1.  GRPO, https://arxiv.org/abs/2402.03300; unbiased in value only"""
  x = _x(logp, batch)
  return stats.expm1(-x) + x


def kl_k3_plus(logp: Array, batch: Batch, entropy: Array | None) -> Array:
  """sg[k3] + k2 − sg[k2]: the value of k3 with the gradient of k2.  verl's "k3+" """
  k2, k3 = kl_k2(logp, batch, entropy), kl_k3(logp, batch, entropy)
  return jax.lax.stop_gradient(k3 - k2) + k2


def kl_k1_corrected(logp: Array, batch: Batch, entropy: Array | None) -> Array:
  """r x, with gradient through r = π_θ / π_old: exact also off-policy."""
  return _ratio(logp, batch) * kl_k1(logp, batch, entropy)


def kl_k3_corrected(logp: Array, batch: Batch, entropy: Array | None) -> Array:
  """r k3, with gradient through r = π_θ / π_old.  DeepSeek-V3.2, https://arxiv.org/abs/2512.02556"""
  return _ratio(logp, batch) * kl_k3(logp, batch, entropy)


def log2_kl(logp: Array, batch: Batch, entropy: Array | None, *, anchor="sampler") -> Array:
  """(log π_θ − log μ)²: twice k2 against the sampler's policy.  Kimi K2.5, https://arxiv.org/abs/2602.02276

  anchor "old": against π_old; REINFORCE with beta = β / 2 of it is DRO as verl has it.
  """
  if anchor not in ("sampler", "old"):
    raise ValueError(f"config.objective.penalty: anchor = '{anchor}'; it is 'sampler' or 'old'.")
  against = field(batch, "sampler_logp") if anchor == "sampler" else batch.old_logp
  return jnp.where(batch.mask > 0, logp - against, 0.0) ** 2


def entropy_bonus(logp: Array, batch: Batch, entropy: Array | None) -> Array:
  """−H(π_θ), as a mean over tokens whatever `aggregate` is, so that beta means one thing."""
  if entropy is None:
    raise ValueError("entropy_bonus needs the entropies of π_θ: pass them to objective.loss.")
  return -entropy * jnp.where(batch.weight > 0, batch.token_mean_weight / batch.weight, 0.0)


def _x(logp: Array, batch: Batch) -> Array:
  return jnp.where(batch.mask > 0, logp - field(batch, "ref_logp"), 0.0)


def _ratio(logp: Array, batch: Batch) -> Array:
  return stats.exp(jnp.where(batch.mask > 0, logp - batch.old_logp, 0.0))
