"""Credit for turns: [G, U] of a group's trajectories, and from there to the tokens of each turn.

r_u is the reward of turn u, and its return is Σ over j ≥ 0 of gamma^j r_(u+j).  A formula compares turns of
one prompt: `same` [N, N], N = G · U, says which with which.  An advantage reaches a token by the token's own
number of its turn, never by its place.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from grpojax.objective import stats
from grpojax.types import Array, Batch


class PlayedTurns(NamedTuple):
  """The turns of a group."""

  reward: Array  # [G, U]
  anchor: Array  # [G, U]
  invalid: Array  # [G, U] bool
  on: Array  # [G, U] bool: was played, in a valid row


def turns_of(group: Batch) -> PlayedTurns:
  """Returns the turns of a group; a completion without turns is one, whose situation is the prompt."""
  if group.turns is None:
    none = jnp.zeros_like(group.valid)[:, None]
    return PlayedTurns(group.reward[:, None], none, none, group.valid[:, None])
  turns = group.turns
  on = (jnp.arange(turns.reward.shape[1])[None] < turns.count[:, None]) & group.valid[:, None]
  clean = lambda x: jnp.where(on, x, 0)
  return PlayedTurns(clean(turns.reward), clean(turns.anchor), on & turns.invalid, on)


def discounted(reward: Array, on: Array, gamma) -> Array:
  """Returns each turn's return [G, U]."""
  turn = jnp.arange(reward.shape[1])
  ahead = turn[None, :] - turn[:, None]
  weight = jnp.where(ahead >= 0, gamma ** jnp.maximum(ahead, 0), 0.0)
  return (weight[None] * jnp.where(on, reward, 0.0)[:, None, :]).sum(-1)


def all_turns(turns: PlayedTurns) -> Array:
  """Returns `same` of the whole prompt."""
  on = turns.on.ravel()
  return on[:, None] & on[None, :]


def same_situation(turns: PlayedTurns) -> Array:
  """Returns `same` of turns with the same anchor; that of one trajectory may come again."""
  anchor = turns.anchor.ravel()
  return all_turns(turns) & (anchor[:, None] == anchor[None, :])


def relative(x: Array, same: Array, std: bool, eps, ddof) -> Array:
  """Returns (x − mean) / (std + eps, or 1) among those that x is compared with; 0 where all are equal."""
  flat = x.reshape(1, -1)
  scale = stats.std(flat, same, ddof=ddof, axis=1) + eps if std else jnp.ones_like(flat.T)
  found = (flat.T - stats.mean(flat, same, axis=1)) / scale
  return jnp.where(stats.spread(flat, same, axis=1) > 0, found, 0.0).reshape(x.shape)


def score_by_turns(score: Array, turns: PlayedTurns, std: bool, eps, ddof) -> Array:
  """Returns (score − mean) / (std + eps, or 1) [G, U] over the prompt's turns; of a single one its score.

  Long trajectories weigh more, as in the code of https://arxiv.org/abs/2505.10978.
  """
  found = relative(score, all_turns(turns), std, eps, ddof)
  alone = score / (1 + eps) if std else score
  return jnp.where(turns.on.sum() == 1, alone, found)


def by_history(returns: Array, turns: PlayedTurns, base: Array, history, alpha, std: bool, eps) -> Array:
  """Returns Σ_k (k + 1)^alpha A_k / (eps + Σ_k (k + 1)^alpha) [G, U] over the levels whose A_k is not 0.

  A_k compares turns whose last k = 1 .. history + 1 anchors agree, ddof 0; `base` is A_0.  A member within
  rounding of its group's mean counts as 0.
  """
  nearly = 1e-9 if returns.dtype == jnp.float64 else 1e-6

  def level(k, carry):
    same, total, weights = carry
    back = jnp.roll(turns.anchor, k - 1, axis=1).ravel()
    reaches = (jnp.arange(turns.on.shape[1])[None] >= k - 1) & turns.on
    same &= (back[:, None] == back[None, :]) & reaches.ravel()[:, None] & reaches.ravel()[None, :]
    total, weights = add(relative(returns, same, std, eps, 0), k, total, weights)
    return same, total, weights

  def add(a, k, total, weights):
    weight = jnp.where(jnp.abs(a) > nearly, (k + 1.0) ** alpha, 0.0).astype(returns.dtype)
    return total + weight * a, weights + weight

  start = all_turns(turns), *add(base, 0, jnp.zeros_like(returns), jnp.zeros_like(returns))
  _, total, weights = jax.lax.fori_loop(1, history + 2, level, start)
  return total / jnp.where(weights > 0, eps + weights, 1.0)


def to_tokens(advantage: Array, group: Batch) -> Array:
  """Gathers A [G, U] at each token's turn: [G, T], 0 on tokens of none; [G] of completions without turns."""
  advantage = jnp.where(group.valid[:, None], advantage, 0.0)
  return advantage[:, 0] if group.turns is None else _gathered(advantage, group.turns.index)


def tokens_of_turns(batch: Batch) -> Array:
  """Returns the tokens of each turn that are in the mask, [P, G, U]."""
  if batch.turns is None:
    return batch.mask.sum(-1, keepdims=True)
  number = jnp.arange(batch.turns.reward.shape[-1]).reshape(1, 1, 1, -1)
  return jnp.where(batch.turns.index[..., None] == number, batch.mask[..., None], 0.0).sum(-2)


def per_token(share: Array, batch: Batch) -> Array:
  """Gathers a number of each turn [P, G, U] at its tokens: [P, G, T], 0 behind the mask."""
  found = share if batch.turns is None else _gathered(share, batch.turns.index)
  return jnp.where(batch.mask > 0, found, 0.0) * batch.mask


def _gathered(x: Array, index: Array) -> Array:
  """Gathers x [..., U] at index [..., T]; 0 where that is -1."""
  return jnp.where(index >= 0, jnp.take_along_axis(x, jnp.maximum(index, 0), axis=-1), 0.0)
