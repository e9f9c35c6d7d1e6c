"""What is dropped, or weighted, because of where θ has moved?  logp, batch -> factor, [P, G, T] or [P, G, 1].

Runs inside `loss`, on one microbatch, so it may look along a completion and no further.  The factor has no
gradient, and denominators and penalties stay.
"""

import jax.numpy as jnp

from grpojax.objective import stats
from grpojax.objective.fields import field
from grpojax.types import Array, Batch


def stale_failures(logp: Array, batch: Batch, *, delta, anchor="sampler") -> Array:
  """Drops A < 0 where the mean of log μ − log π_θ exceeds delta.  OPSM of DeepSeek-V3.2

  https://arxiv.org/abs/2512.02556: what the policy has left behind anyway is not unlearned again.  anchor
  "old" takes π_old for μ, as slime does, by default with delta = 1e-4.
  """
  if anchor not in ("sampler", "old"):
    raise ValueError(f"config.objective.veto: anchor = '{anchor}'; it is 'sampler' or 'old'.")
  old = field(batch, "sampler_logp") if anchor == "sampler" else batch.old_logp
  distance = stats.mean(old - logp, batch.mask > 0, axis=-1)
  return (batch.advantage >= 0) | (distance <= delta)


def worst_ratio(logp: Array, batch: Batch, *, low=1e-5) -> Array:
  """Drops completions with any π_θ / μ < low.  INTELLECT-3, https://arxiv.org/abs/2512.16144"""
  log_ratio = logp - field(batch, "sampler_logp")
  return ((batch.mask == 0) | (stats.exp(log_ratio) >= low)).all(-1, keepdims=True)


def taper_failures(logp: Array, batch: Batch, *, unit="sequence", sign="reward", threshold=0.0) -> Array:
  """1 where R > threshold, else min(W, 1) with W = Π π_θ / μ: failures fade, successes never.  TOPR

  https://arxiv.org/abs/2503.14286 eq. 8, for `surrogate.reinforce`.  unit "token" takes the token's own ratio
  and sign "advantage" asks A instead of R, as ROLL and Trinity-RFT do.
  """
  menus = dict(unit=(unit, ("sequence", "token")), sign=(sign, ("reward", "advantage")))
  for key, (word, menu) in menus.items():
    if word not in menu:
      raise ValueError(f"config.objective.veto: {key} = '{word}'; it is {' or '.join(map(repr, menu))}.")
  on = batch.mask > 0
  log_ratio = jnp.where(on, logp - field(batch, "sampler_logp"), 0.0)
  if unit == "sequence":
    log_ratio = log_ratio.sum(-1, keepdims=True)
  worth = batch.reward[..., None] if sign == "reward" else batch.advantage
  return jnp.where(worth > threshold, 1.0, jnp.minimum(stats.exp(log_ratio), 1.0))


def proximal_is(logp: Array, batch: Batch, *, low=0.0, high=jnp.inf) -> Array:
  """ρ = π_old / μ where low ≤ ρ ≤ high, else 0: of a π_old that depends on θ, `shape.log_linear`'s.  AReaL

  For a known π_old it is `correct.icepop`.
  """
  rho = stats.exp(jnp.where(batch.mask > 0, batch.old_logp - field(batch, "sampler_logp"), 0.0))
  return jnp.where((rho >= low) & (rho <= high), rho, 0.0)
