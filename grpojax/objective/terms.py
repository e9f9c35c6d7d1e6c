"""Terms of the loss with tokens and denominators of their own: `component` and `preference`.

Both are made ready once, on the whole optimiser batch.  A component gets a weight for each token.  The loss
of pairs is no sum over tokens: it becomes one around the log-probs that the update starts from, with its
value and gradient there, so that microbatches may cut a pair in two.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from grpojax.objective.preference import Pair
from grpojax.types import Array, Batch


class Component(NamedTuple):
  """A cost of single tokens."""

  coef: float
  stream: Callable  # batch -> weight [P, G, T]
  fn: Callable  # logp, batch -> cost [P, G, T]


class Preference(NamedTuple):
  """A cost of pairs."""

  coef: float
  fn: Callable  # Pair -> cost []


class Tangent(NamedTuple):
  """A term as a sum over tokens, value + slope (log π_θ − sg[log π_θ])."""

  value: Array  # [P, G, T]
  slope: Array  # [P, G, T]


def weights(components: tuple[Component, ...], batch: Batch) -> tuple[Array, ...] | None:
  """Returns the weight [P, G, T] of each component's tokens, coef · stream / tokens in it; None of none."""
  if not components:
    return None
  found = []
  for component in components:
    stream = jnp.where(batch.valid[..., None], component.stream(batch), 0.0)
    found.append(component.coef * stream / jnp.maximum((stream != 0).sum(), 1))
  return tuple(found)


def cost(component: Component, weight: Array, logp: Array, batch: Batch) -> Array:
  """Returns a component's loss []; logp [P, G, T] has anything where the weight is 0."""
  on = weight != 0
  return (weight * jnp.where(on, component.fn(jnp.where(on, logp, 0.0), batch), 0.0)).sum()


def tangents(preferences: tuple[Preference, ...], logp: Array, batch: Batch) -> tuple[Tangent, ...]:
  """Returns each preference as a sum over tokens around logp [P, G, T], of π_θ and 0 behind the mask."""
  on = batch.mask > 0
  both, paired = pairs(batch)
  chosen = both[:, 0]
  of_pair = lambda x: jnp.take_along_axis(x, both, axis=1)
  length = on.sum(-1)
  reference = None if batch.ref_logp is None else of_pair(batch.ref_logp.sum(-1))

  def one(preference: Preference) -> Tangent:
    def costs(policy):  # [P, G] -> [P]
      found = jax.vmap(preference.fn)(Pair(of_pair(policy), reference, of_pair(length)))
      return preference.coef * jnp.where(paired, found, 0.0) / jnp.maximum(paired.sum(), 1)

    value, pull = jax.vjp(costs, logp.sum(-1))
    (slope,) = pull(jnp.ones_like(value))
    at_chosen = value[:, None] * jax.nn.one_hot(chosen, on.shape[1], dtype=logp.dtype)
    spread = lambda x: jnp.where(on, x[..., None], 0.0)
    return Tangent(spread(at_chosen / jnp.maximum(length, 1)), spread(slope))

  return tuple(map(one, preferences))


def pairs(batch: Batch) -> tuple[Array, Array]:
  """Returns the rows [P, 2] of each group's chosen and rejected completion, and whether it has two [P]."""
  counted = batch.valid & (batch.mask > 0).any(-1)
  best, worst, paired = jax.vmap(_pair)(batch.reward, counted)
  return jnp.stack([best, worst], axis=-1), paired


def along(tangent: Tangent, logp: Array) -> Array:
  """Returns the term's loss [], with its gradient by logp."""
  moved = jnp.where(tangent.slope != 0, logp, 0.0)
  return (tangent.value + tangent.slope * (moved - jax.lax.stop_gradient(moved))).sum()


def _pair(reward: Array, counted: Array) -> tuple[Array, Array, Array]:
  """Returns the first best and the first worst row of a group [G], and whether they differ: [] each."""
  best = jnp.where(counted, reward, -jnp.inf).argmax()
  worst = jnp.where(counted, reward, jnp.inf).argmin()
  return best, worst, counted.any() & (reward[best] > reward[worst])
