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


def icepop(batch: Batch, *, low=0.5, high=5.0, weighted=True) -> Array:
  """ρ where low ≤ ρ ≤ high, else 0; 1 instead of ρ if not weighted.  IcePop

  https://arxiv.org/abs/2510.18855; unweighted it is SkyRL's token mask.
  """
  rho = stats.exp(_delta(batch))
  return jnp.where((rho >= low) & (rho <= high), rho if weighted else 1.0, 0.0)


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


def sequence_mask(batch: Batch, *, stat="abs", reduce="mean", low=0.0, high=2.0) -> Array:
  """1 where low ≤ x ≤ high, else 0; x is a statistic of a completion's tokens.  verl, SkyRL, NeMo RL

  stat: "k1" δ = log ρ (bounds are on e^x), "k2" δ² / 2, "k3" e^δ − 1 − δ, "abs" e^|δ|; reduce: "mean", "sum"
  or "max".  By default NeMo RL's threshold of 2.  verl's k1 has the other sign, its bounds are the other way
  round.
  """
  delta, on = _delta(batch), batch.mask > 0
  stat_of = dict(
    k1=lambda: delta,
    k2=lambda: 0.5 * delta**2,
    k3=lambda: stats.expm1(delta) - delta,
    abs=lambda: stats.exp(jnp.abs(delta)),
  )
  over = dict(mean=stats.mean, sum=stats.total, max=stats.largest)
  for key, word, menu in ("stat", stat, stat_of), ("reduce", reduce, over):
    if word not in menu:
      raise ValueError(f"config.objective.correct: {key} = '{word}'; it is {', '.join(menu)}.")
  x = over[reduce](stat_of[stat](), on, axis=-1)
  x = stats.exp(x) if stat == "k1" else x
  return ((x >= low) & (x <= high) | ~on.any(-1, keepdims=True)) * 1.0


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
