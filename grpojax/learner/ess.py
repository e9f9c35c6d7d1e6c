"""A smaller step where few completions stand for all: the effective sample size of their exact ratios.

VCPO, https://arxiv.org/abs/2602.17616.  The factor is on the step, behind the optimiser's moments; on the
gradient, Adam would undo it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from grpojax.types import Batch


class EssConfig(NamedTuple):
  """Static settings."""

  rule: str = ""  # "sqrt" or "linear" in share / base; "": every step is whole
  base: float = 1.0  # the share from which on a step is whole


def share(log_weight: jax.Array, on: jax.Array) -> jax.Array:
  """Returns (Σ w)² / (n Σ w²) [] of the n weights that are `on`; 0 without one.

  Weights are given as logarithms and only matter relative to the largest, so that none overflows.
  """
  top = jnp.where(on, log_weight, -jnp.inf).max()
  weight = jnp.where(on, jnp.exp(jnp.where(on, log_weight - top, 0.0)), 0.0)
  squares = jnp.maximum(on.sum(), 1) * (weight**2).sum()
  return jnp.where(on.any(), weight.sum() ** 2 / jnp.maximum(squares, 1e-30), 0.0)


def share_of(batch: Batch, logp: jax.Array) -> jax.Array:
  """Returns the share [] of the completions' ratios π / μ, products over tokens; logp [P, G, T] is of π."""
  on = batch.mask > 0
  log_ratio = jnp.where(on, logp - batch.sampler_logp, 0.0).sum(-1)
  return share(log_ratio, on.any(-1))


def factor(c: EssConfig, share: jax.Array) -> jax.Array:
  """Returns the factor [] on the step: the rule's of share / base, at most 1."""
  ratio = jnp.minimum(share / c.base, 1.0)
  return jnp.sqrt(ratio) if c.rule == "sqrt" else ratio
