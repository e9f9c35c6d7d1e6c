"""Trackers between a run's steps, as pure functions.  All values stay in float32."""

import jax
import jax.numpy as jnp

from grpojax.types import Array


def ema(average, value, *, rate):
  """Returns (1 − rate) · average + rate · value, for every leaf.

  A moving baseline (value: the step's mean reward; use the average from before the step), or a
  reference policy that follows (value: θ; TR-DPO, https://arxiv.org/abs/2404.09656, has rate 0.6
  every 512 steps).  In bfloat16 a rate below 2⁻⁸ is lost.
  """
  return jax.tree.map(lambda old, new: (1 - rate) * old + rate * new, average, value)


def kl_scale(scale, kl, *, target, horizon, completions):
  """Returns the factor on every KL coefficient after a step of `completions` that measured `kl`.

  scale · (1 + clip(kl / target − 1, ±0.2) · completions / horizon).  Ziegler et al.,
  https://arxiv.org/abs/1909.08593 section 2.2, in the form of verl and OpenRLHF.
  """
  error = jnp.clip(kl / target - 1, -0.2, 0.2)
  return scale * (1 + error * completions / horizon)


def beta_mean(successes: Array, failures: Array) -> Array:
  """Returns a prompt's expected reward, successes / (successes + failures), the baseline of SPO."""
  return successes / (successes + failures)


def beta_update(successes: Array, failures: Array, reward: Array, *, keep, weight=1.0):
  """Returns (successes, failures) after a reward in 0..1, older ones discounted by `keep`.

  SPO, https://arxiv.org/abs/2509.13232: keep from `beta_keep`, a weight of 1 per completion.  With
  keep = 1 − rate and weight = rate it is a moving average.  Call it after its mean has been used.
  """
  return keep * successes + weight * reward, keep * failures + weight * (1 - reward)


def beta_keep(distance: Array) -> Array:
  """Returns the share of past counts to keep: 2^(−distance / 0.06) in 0.875..0.96.  SPO

  `distance` is the mean of |log π − log π'| since the prompt was last seen.
  """
  return jnp.clip(2.0 ** (-distance / 0.06), 0.875, 0.96)


def prompt_weight(success_rate: Array, *, floor=0.05) -> Array:
  """Returns sqrt(p (1 − p)) + floor: how often to draw a prompt; never 0, so it can come back.  SPO"""
  return (success_rate * (1 - success_rate)) ** 0.5 + floor
