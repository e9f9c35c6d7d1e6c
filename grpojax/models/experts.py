"""Products of tokens and their experts: choices are sorted by expert and multiplied group by group.

Grouped products are `jax.lax.ragged_dot`, so no capacity is exceeded and nothing is dropped.  Where some of
the experts are elsewhere, the choices of those here are computed in parts of a little more than an even load:
since routing is data, one part where the load is even, several where it is not.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from grpojax.models.parts import ACTIVATIONS


def apply_experts(h, experts, gates, *weights, activation: str, first=0, shards: int = 1):
  """Returns the gated sum over the local experts of each token, numbers `first` and on.

  h [B, S, D], experts and gates [B, S, k] -> [B, S, D].  The weights are gate and up [E, D, F], or both side
  by side [E, D, 2 F], and down [E, F, D].  About one expert in `shards` is local, with 1 all are: the choices
  of local experts are computed in parts, as many as they need.
  """
  B, S, D = h.shape
  E, k = weights[0].shape[0], experts.shape[-1]
  here = (experts >= first) & (experts < first + E)
  of_choice = jnp.where(here, experts - first, E).reshape(-1)  # [B S k]; E: elsewhere, sorted last
  order = jnp.argsort(of_choice)
  ends = jnp.cumsum(jnp.bincount(of_choice, length=E + 1)[:E])
  rows, flat = _rows_at_a_time(B * S * k, shards), h.reshape(B * S, D)
  if rows == B * S * k:
    part = _part(rows, k, order, ends, 0)
    part = part._replace(covered=None) if shards == 1 else part
    rows_of_token = jnp.argsort(order).reshape(-1, k).T
    x = _of_choices(flat, part.token, rows_of_token)
    y = _outputs(activation, part, x, gates.reshape(-1)[order], *weights)
    return _of_tokens(y, part.token, rows_of_token).reshape(B, S, D)
  order = jnp.pad(order, (0, -len(order) % rows))
  parts = flat, gates.reshape(-1), weights, order, ends
  return _by_parts(rows, k, activation, *_alike(parts)).reshape(B, S, D).astype(h.dtype)


def _rows_at_a_time(choices: int, shards: int) -> int:
  """Returns a part's number of choices: a quarter more than an even load brings; all, where they are few."""
  return choices if shards == 1 or choices <= 4096 else -(-5 * choices // (4 * shards) // 128) * 128


class _Part(NamedTuple):
  """Some of the choices, sorted by expert."""

  choice: jax.Array  # [rows] int32
  token: jax.Array  # [rows] int32
  sizes: jax.Array  # [E] int32
  covered: jax.Array | None  # [rows, 1] bool; rows behind all groups are of no meaning; None: there are none


def _part(rows: int, k: int, order, ends, i) -> _Part:
  choice = jax.lax.dynamic_slice_in_dim(order, i * rows, rows)
  inside = jnp.clip(ends - i * rows, 0, rows)
  covered = (jnp.arange(rows) < inside[-1])[:, None]
  return _Part(choice, choice // k, jnp.diff(inside, prepend=0), covered)


def _outputs(activation: str, part: _Part, x, gates, *weights):
  """Returns the experts' gated outputs [rows, D] for x [rows, D], tokens of the part's choices; gates [rows].

  Gates are applied before the last product: rows are narrow there, and no gradient needs that product again.
  """
  dot = partial(jax.lax.ragged_dot, group_sizes=part.sizes)
  keep = lambda x: x if part.covered is None else jnp.where(part.covered, x, 0)
  x, (*inner, down) = keep(x), weights
  gate, up = (dot(x, w) for w in inner) if len(inner) == 2 else jnp.split(dot(x, inner[0]), 2, axis=-1)
  hidden = ACTIVATIONS[activation](gate) * up
  hidden = hidden.astype(jnp.float32) * gates.astype(jnp.float32)[:, None]
  return keep(dot(hidden.astype(x.dtype), down))


@jax.custom_vjp
def _of_choices(h, token, rows_of_token):
  """Returns h[token], [rows, D], of h [tokens, D]; rows_of_token [k, tokens]: where each token's k rows are.

  This and `_of_tokens` are each other's transpose, so that neither's gradient adds rows up one after another.
  """
  return h[token]


@jax.custom_vjp
def _of_tokens(y, token, rows_of_token):
  """Returns the sum of each token's k rows, [tokens, D], of y [rows, D], in float32 inside.

  Written as a sum of k arrays, each widened by itself: a TPU's reduction over them takes six times as long.
  """
  return sum(x.astype(jnp.float32) for x in y[rows_of_token]).astype(y.dtype)


def _with_places(function):
  return lambda x, *places: (function(x, *places), places)


_of_choices.defvjp(_with_places(_of_choices), lambda places, d: (_of_tokens(d, *places), None, None))
_of_tokens.defvjp(_with_places(_of_tokens), lambda places, d: (_of_choices(d, *places), None, None))


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _by_parts(rows, k, activation, h, gates, weights, order, ends):
  """Returns [tokens, D] float32; h [tokens, D], gates [choices], order [choices or more], ends [E]."""

  def add(i, out):
    part = _part(rows, k, order, ends, i)
    y = _outputs(activation, part, h[part.token], gates[part.choice], *weights)
    return out.at[part.token].add(y.astype(jnp.float32))

  return jax.lax.fori_loop(0, -(-ends[-1] // rows), add, jnp.zeros_like(h, jnp.float32))


def _by_parts_backward(rows, k, activation, kept, d_out):
  h, gates, weights, order, ends = kept

  def add(i, found):
    d_h, d_gates, d_weights = found
    part = _part(rows, k, order, ends, i)
    _, backward = jax.vjp(partial(_outputs, activation, part), h[part.token], gates[part.choice], *weights)
    of_rows, of_gates, *of_weights = backward(d_out[part.token].astype(h.dtype))
    return (
      d_h.at[part.token].add(of_rows.astype(jnp.float32)),
      d_gates.at[part.choice].add(of_gates.astype(jnp.float32)),
      [total + x.astype(jnp.float32) for total, x in zip(d_weights, of_weights, strict=True)],
    )

  start = jax.tree.map(lambda x: jnp.zeros_like(x, jnp.float32), (h, gates, list(weights)))
  d_h, d_gates, d_weights = jax.lax.fori_loop(0, -(-ends[-1] // rows), add, start)
  like = lambda x, old: x.astype(old.dtype)
  return like(d_h, h), like(d_gates, gates), tuple(map(like, d_weights, weights)), None, None


def _alike(tree):
  """Marks all values as varying along the same mesh axes, as loops and gradients require."""
  axes = frozenset().union(*(jax.typeof(x).manual_axis_type.varying for x in jax.tree.leaves(tree)))

  def one(x):
    missing = tuple(sorted(axes - jax.typeof(x).manual_axis_type.varying))
    return jax.lax.pcast(x, missing, to="varying") if missing else x

  return jax.tree.map(one, tree)


_by_parts.defvjp(lambda *args: (_by_parts(*args), args[3:]), _by_parts_backward)
