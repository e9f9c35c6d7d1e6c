"""The adaptive KL coefficient, `config.kl_control`: one factor on all of an objective's KL terms."""

import jax.numpy as jnp


def kl_scale(scale, kl, *, target, horizon, completions):
  """Returns the factor on every KL coefficient after a step of `completions` that measured `kl`.

  scale · (1 + clip(kl / target − 1, ±0.2) · completions / horizon).  Ziegler et al.,
  https://arxiv.org/abs/1909.08593 section 2.2, in the form of verl and OpenRLHF.
  """
  error = jnp.clip(kl / target - 1, -0.2, 0.2)
  return scale * (1 + error * completions / horizon)
