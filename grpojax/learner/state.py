"""All that an update changes, with the running statistics that the next update reads."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from grpojax.learner.kl_control import kl_scale
from grpojax.models import Model
from grpojax.objective.stats import ema


class RunStats(NamedTuple):
  """Statistics of the updates, float32 and int32 on the device."""

  kl_scale: jax.Array  # [] factor on every KL coefficient
  # [] moving average over steps whose updates were all taken, of those with a gradient; NaN before the first
  grad_norm: jax.Array
  nonfinite: jax.Array  # [] int32, steps in a row up to the last that had an update that was not finite
  sums: dict  # of the step under way: kl, grad_norm, skipped, nonfinite, updates, taught (with a gradient)


class State(NamedTuple):
  """Donated to the update, returned sharded as it came."""

  params: dict  # what is trained: everything, or the adapters
  opt_state: tuple
  updates: jax.Array  # [] int32, optimiser steps taken
  stats: RunStats


class StatsConfig(NamedTuple):
  """Static numbers of the statistics."""

  updates: int = 1  # of a step
  completions: int = 1  # of a step
  target: float = 0.0  # nats per token that kl_scale steers to; 0: it stays
  horizon: float = 1.0  # completions
  spike: float = 0.0  # gradient norms above so many averages are skipped; 0: none
  rate: float = 0.05  # weight of the newest step in the average


def create(params: dict, tx: optax.GradientTransformation) -> State:
  """Returns the state of these parameters with a new optimiser, before its first update."""
  return State(params, tx.init(params), jnp.int32(0), start())


def make_init(model: Model, tx: optax.GradientTransformation) -> Callable:
  """Returns init(key) -> State with random parameters.  Jit it with `state_shardings` as out_shardings."""
  return lambda key: create(model.init(key), tx)


def start() -> RunStats:
  """Returns the statistics before the first update."""
  zero = jnp.float32(0)
  sums = dict.fromkeys(("kl", "grad_norm", "skipped", "nonfinite"), zero)
  sums |= dict.fromkeys(("updates", "taught"), jnp.int32(0))
  return RunStats(jnp.float32(1), jnp.float32(jnp.nan), jnp.int32(0), sums)


def limit(c: StatsConfig, stats: RunStats):
  """Returns the gradient norm [] above which an update is skipped; infinite if none is, and at first."""
  if not c.spike:
    return jnp.float32(jnp.inf)
  return jnp.where(jnp.isnan(stats.grad_norm), jnp.inf, c.spike * stats.grad_norm)


def after_update(c: StatsConfig, stats: RunStats, metrics: dict) -> RunStats:
  """Returns the statistics after one more update; averages move when the last of a step's updates is done."""
  new = dict(kl=metrics.get("kl", jnp.float32(0)), grad_norm=metrics["grad_norm"])
  new |= dict(skipped=metrics["update/skipped"], nonfinite=metrics["update/nonfinite"])
  new |= dict(updates=jnp.int32(1), taught=jnp.int32(metrics["grad_norm"] != 0))
  sums = jax.tree.map(jnp.add, stats.sums, new)
  done = sums["updates"] == c.updates
  mean_norm = sums["grad_norm"] / jnp.maximum(sums["taught"], 1)
  moved = ema(stats.grad_norm, mean_norm, rate=jnp.float32(c.rate))
  norm = jnp.where(jnp.isnan(stats.grad_norm), mean_norm, moved)
  # Groups without contrast have no gradient: averaging these in would make the next real gradient a spike.
  norm = jnp.where((sums["skipped"] > 0) | (sums["taught"] == 0), stats.grad_norm, norm)
  scale = stats.kl_scale
  if c.target > 0:
    moved = kl_scale(
      scale, sums["kl"] / c.updates, target=c.target, horizon=c.horizon, completions=c.completions
    )
    scale = jnp.where(jnp.isnan(moved), scale, moved)  # of a batch that was skipped
  rolled = RunStats(
    jnp.float32(scale), norm, jnp.where(sums["nonfinite"] > 0, stats.nonfinite + 1, 0),
    jax.tree.map(jnp.zeros_like, sums),
  )
  return jax.tree.map(lambda a, b: jnp.where(done, a, b), rolled, stats._replace(sums=sums))
