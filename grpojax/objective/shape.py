"""The record before the formula: Batch -> Batch.  Changes rewards, who is scored, which π_old.

Runs first, in the order of the names in the config.  A row that is no longer `valid` here leaves
its group's statistics and has A = 0; it still counts in the B of `constant`.
"""

import jax.numpy as jnp

from grpojax.objective.fields import field
from grpojax.types import Batch


def bypass(batch: Batch) -> Batch:
  """π_old := μ.  Two policies instead of three: the ratio is π_θ / μ, and no mismatch is left."""
  return batch._replace(old_logp=field(batch, "sampler_logp"))


def log_linear(batch: Batch) -> Batch:
  """log π_old := log μ + α (log π_θ − log μ), α = (d − 1) / d; d steps after μ.  A-3PO's proximal policy

  AReaL; saves the pass that π_old takes.  d = 1 is `bypass`.  The weight π_old / μ depends on θ then, and is
  `veto.proximal_is`.
  """
  lag = field(batch, "lag")
  field(batch, "sampler_logp")
  share = jnp.where(lag > 0, (lag - 1) / jnp.maximum(lag, 1), 0.0)
  return batch._replace(old_logp=None, prox_share=share)


def kl_k1(batch: Batch, *, beta) -> Batch:
  """R − beta Σ_t (log π_old − log π_ref): KL in the reward, before any baseline.  RLOO

  https://arxiv.org/abs/2402.14740; its gradient is that of KL(π_θ‖π_ref).
  """
  x = field(batch, "old_logp") - field(batch, "ref_logp")
  return batch._replace(reward=batch.reward - beta * jnp.where(batch.mask > 0, x, 0.0).sum(-1))


def finished_only(batch: Batch) -> Batch:
  """Completions that the budget cut leave mean and std; their tokens stay (`select.finished`)."""
  return batch._replace(valid=batch.valid & batch.ended)
