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


def dppo_tv(
  log_ratio: Array, logp: Array, advantage: Array, *, low=0.2, high=0.2, w_max=20.0, form="sg"
) -> Array:
  """sg[min(r, w_max)] A log π while π − π_old ≤ high (A > 0) or ≥ −low (else), then 0.  DPPO-TV

  https://arxiv.org/abs/2602.04879 eq. 13: |π − π_old| of the sampled token bounds the total variation, which
  r does not.  Coming back is always allowed.  form "grad": the same gradient, the value min(r, w_max) A, as
  SkyRL and prime-rl, which have no w_max.  For `ratio.token`; π_old is the sampler's after `shape.bypass`.
  """
  moved = jnp.exp(logp) - jnp.exp(logp - log_ratio)
  inside = jnp.where(advantage > 0, moved <= high, moved >= -low)
  return _weighted(inside, log_ratio, logp, advantage, w_max, form)


def dppo_kl(
  log_ratio: Array, logp: Array, advantage: Array, *, low=0.05, high=0.05, w_max=20.0, form="sg"
) -> Array:
  """`dppo_tv` with KL(π_old‖π), of this token against all others, for π − π_old.  The same paper, eq. 14"""
  old = logp - log_ratio
  rest, old_rest = (jnp.maximum(-jnp.expm1(x), 0.0) for x in (logp, old))  # 1 − π, with digits near π = 1 too
  kl = old_rest * (jnp.log(old_rest + 1e-8) - jnp.log(rest + 1e-8)) - jnp.exp(old) * log_ratio
  inside = jnp.where(advantage > 0, (kl <= high) | (log_ratio <= 0), (kl <= low) | (log_ratio >= 0))
  return _weighted(inside, log_ratio, logp, advantage, w_max, form)


def tv_band(log_ratio: Array, logp: Array, advantage: Array, *, delta=0.1) -> Array:
  """r A where |π − π_old| ≤ delta, else 0, whatever the sign of A.  prime-rl's "ipo", no preference loss"""
  inside = jnp.abs(jnp.exp(logp) - jnp.exp(logp - log_ratio)) <= delta
  return jnp.where(inside, jnp.exp(log_ratio) * advantage, 0.0)


def vespo(
  log_ratio: Array, logp: Array, advantage: Array, *, k_pos=2.0, lambda_pos=3.0, k_neg=3.0, lambda_neg=2.0
) -> Array:
  """sg[W^k e^(λ − λ W)] A log π, W = r: largest at W = k / λ, and gone at both ends.  VESPO

  https://arxiv.org/abs/2602.10693; k and λ by the sign of A.  For `ratio.sequence_product`; after
  `shape.bypass` W is π / μ of the completion, and needs no other weight.
  """
  k, decay = (jnp.where(advantage >= 0, *pair) for pair in ((k_pos, k_neg), (lambda_pos, lambda_neg)))
  log_w = jnp.maximum(log_ratio, jnp.log(1e-8))
  weight = jnp.exp(k * log_w + decay * (1 - jnp.exp(log_w)))
  return jax.lax.stop_gradient(weight) * advantage * logp


def ratio_band(log_ratio: Array, logp: Array, advantage: Array, *, low=0.5, high=5.0) -> Array:
  """r A where low ≤ r ≤ high, else 0: IcePop with two policies, after `shape.bypass`.  prime-rl"""
  r = jnp.exp(log_ratio)
  return jnp.where((r >= low) & (r <= high), r * advantage, 0.0)


def _weighted(inside: Array, log_ratio: Array, logp: Array, advantage: Array, w_max, form: str) -> Array:
  """Returns the gain whose gradient is that of w A log π, w = min(r, w_max) inside and 0 outside."""
  if form not in ("sg", "grad"):
    raise ValueError(f"config.objective.surrogate.form = '{form}'; it is 'sg' or 'grad'.")
  weight = jax.lax.stop_gradient(jnp.where(inside, jnp.minimum(jnp.exp(log_ratio), w_max), 0.0))
  if form == "sg":
    return weight * advantage * logp
  return weight * advantage * jnp.exp(log_ratio - jax.lax.stop_gradient(log_ratio))
