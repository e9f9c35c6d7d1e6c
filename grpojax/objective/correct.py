"""How far is the sampler to be trusted?  batch -> factor of the policy term, no gradient.

[P, G, T] where tokens are weighted, [P, G, 1] where completions are.  ρ = π_old / μ of a token.
Denominators and penalties stay as they are.  Bounds are inclusive.  An entry has two more switches:

    renormalize       rejected tokens leave the mask, and with it penalties and denominators
    batch_normalize   the factor is divided by its mean over tokens, or completions if [P, G, 1]
"""

import jax.numpy as jnp

from grpojax.objective import stats
from grpojax.objective.fields import field
from grpojax.types import Array, Batch


def truncated_is(batch: Batch, *, high=2.0) -> Array:
  """min(ρ, high).  TIS, https://fengyao.notion.site/off-policy-rl"""
  return jnp.minimum(stats.exp(_delta(batch)), high)


def sequence_truncated_is(batch: Batch, *, high=2.0) -> Array:
  """min(Π ρ, high).  The exact ratio of a completion; its variance grows with length"""
  return jnp.minimum(stats.exp(_delta(batch).sum(-1, keepdims=True)), high)


def icepop(batch: Batch, *, low=0.5, high=5.0) -> Array:
  """ρ where low ≤ ρ ≤ high, else 0.  IcePop, https://arxiv.org/abs/2510.18855"""
  rho = stats.exp(_delta(batch))
  return jnp.where((rho >= low) & (rho <= high), rho, 0.0)


def masked_is(batch: Batch, *, high=2.0, low=0.0, weighted=True) -> Array:
  """Π ρ where low ≤ Π ρ ≤ high, else 0; 1 instead of Π ρ if not weighted.  MIS

  Over long completions Π ρ goes to 0 or infinity: `geometric_rejection` filters those better.
  """
  product = stats.exp(_delta(batch).sum(-1, keepdims=True))
  kept = (product >= low) & (product <= high)
  return jnp.where(kept, product if weighted else 1.0, 0.0)


def geometric_rejection(batch: Batch, *, low=0.999, high=1.001) -> Array:
  """1 where low ≤ geometric mean of ρ ≤ high, else 0.  verl's geometric band"""
  mean = stats.mean(_delta(batch), batch.mask > 0, axis=-1)
  return ((stats.exp(mean) >= low) & (stats.exp(mean) <= high)) * 1.0


def sequence_masked_tis(batch: Batch, *, low=0.999, high=1.001) -> Array:
  """ρ in completions that `geometric_rejection` keeps, else 0.  OpenRLHF, NeMo RL"""
  return stats.exp(_delta(batch)) * geometric_rejection(batch, low=low, high=high)


def worst_token(batch: Batch, *, low=1e-4, high=jnp.inf) -> Array:
  """1 where every token has low ≤ ρ ≤ high, else 0.  WTRS; low 1e-4 is verl's and slime's veto"""
  rho, off = stats.exp(_delta(batch)), batch.mask == 0
  return (off | ((rho >= low) & (rho <= high))).all(-1, keepdims=True) * 1.0


def _delta(batch: Batch) -> Array:
  """Returns log ρ, 0 behind the mask."""
  delta = field(batch, "old_logp") - field(batch, "sampler_logp")
  return jnp.where(batch.mask > 0, delta, 0.0)
