"""Grouped-query attention and rotary positions, the reference implementation in plain jnp."""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh

from grpojax.models.parts import softcap
from grpojax.runtime import sharding


class View(NamedTuple):
  """Mask and rotary angles of one call, before a layer's own window and rotary table are applied."""

  mask: jax.Array  # [B, S, keys] bool
  distance: jax.Array  # [1 or B, S, keys] int32, positions from a key to its query
  cos: jax.Array  # [tables, B, S, H / 2] float32
  sin: jax.Array
  mesh: Mesh | None = None  # its `context` axis may cut the queries; keys and values travel to all devices

  def of(self, window, table):
    """Returns (attention, turn) of a layer, as `Block` takes them; None is no window, or the only table."""
    mask = self.mask if window is None else self.mask & (self.distance < window)
    table = 0 if table is None else table

    def attention(q, k, v, scale, cap):
      if sharding.column_shards(self.mesh, q.shape[0]) == 1:
        read = attend_causally(q, k, v, mask, scale, cap)
      else:  # queries are cut already
        read = attend(q, *(sharding.whole_columns(self.mesh, x) for x in (k, v)), mask, scale, cap)
      return checkpoint_name(read, "attention"), (k, v)

    return attention, partial(rotate, rope=(self.cos[table], self.sin[table]))


def view(mask, distance, positions, frequencies, mesh: Mesh | None = None) -> View:
  """Returns a `View`; mask [B, S, keys], distance as there, positions [B, S], frequencies [tables, H/2]."""
  return View(mask, distance, *angles(positions, frequencies), mesh)


def sequence_view(segment, frequencies, mesh: Mesh | None = None, response=None) -> View:
  """Returns the view that whole sequences have of themselves, where columns differ as positions do.

  Of prompts with several responses behind them, `response` [B, S] is 0 in a prompt, which all of them see
  and begin behind, and elsewhere one number for each response of the `segment` [B, S].
  """
  mask, at, column = causal_mask(segment), sequence_positions(segment, response), jnp.arange(segment.shape[1])
  if response is None:
    return view(mask, (column[:, None] - column[None])[None], at, frequencies, mesh)
  of_key, of_query = response[:, None, :], response[:, :, None]
  seen = mask & ((of_key == 0) | (of_key == of_query))
  return view(seen, at[:, :, None] - at[:, None, :], at, frequencies, mesh)


def sequence_positions(segment, response=None):
  """Returns the position [B, S] int32 of each column in its sequence, which `sequence_view` describes."""
  at, column = positions(segment), jnp.arange(segment.shape[1])[None]
  if response is None:
    return at
  behind_prompt = jax.lax.cummax(jnp.where(response == 0, column + 1, 0), axis=1)
  begun = column - at  # first column of the segment
  return jnp.where(response == 0, at, behind_prompt - begun + positions(response))


def angles(positions, frequencies):
  """Returns cos and sin, [tables, B, S, H / 2] float32; positions [B, S], frequencies [tables, H / 2]."""
  turned = positions[None, ..., None].astype(jnp.float32) * frequencies[:, None, None, :]
  return jnp.cos(turned), jnp.sin(turned)


def left_padded(length: int, first):
  """Returns segments [B, length] int32, one sequence a row: 1 from column `first` [B] on, else 0."""
  return (jnp.arange(length)[None] >= first[:, None]).astype(jnp.int32)


def causal_mask(segment):
  """Returns [B, S, S] bool: key j is visible to query i iff j <= i and both have one `segment` [B, S]."""
  column = jnp.arange(segment.shape[1])
  causal = column[None, :] <= column[:, None]
  return causal[None] & (segment[:, :, None] == segment[:, None, :])


def positions(segment):
  """Returns [B, S] int32: columns since the `segment` [B, S] began."""
  column = jnp.broadcast_to(jnp.arange(segment.shape[1]), segment.shape)
  begins = jnp.pad(segment[:, 1:] != segment[:, :-1], ((0, 0), (1, 0)), constant_values=True)
  return column - jax.lax.cummax(jnp.where(begins, column, 0), axis=1)


def rotate(x, rope):
  """Applies the rotary embedding, halves paired as Hugging Face's.  x [B, S, N, H], rope 2 x [B, S, H/2]."""
  cos, sin = (jnp.expand_dims(r, 2).astype(x.dtype) for r in rope)
  a, b = jnp.split(x, 2, axis=-1)
  cos, sin = jnp.broadcast_to(cos, a.shape), jnp.broadcast_to(sin, a.shape)
  return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def rotate_by_product(x, rope):
  """Returns the numbers of `rotate`, whose halves of heads leave half of a TPU's lanes empty.

  A product with 0, 1 and -1 exchanges the halves instead; the compiler fuses it into its neighbours.
  """
  cos, sin = (jnp.tile(r.astype(x.dtype), 2)[:, :, None] for r in rope)
  exchange = np.kron([[0, 1], [-1, 0]], np.eye(x.shape[-1] // 2)).astype(x.dtype)  # (a, b) -> (-b, a)
  other = jnp.matmul(x, exchange, precision="highest")  # exact also in float32
  return x * jnp.broadcast_to(cos, x.shape) + other * jnp.broadcast_to(sin, x.shape)


def attend_causally(q, k, v, mask, scale: float, cap: float = 0.0):
  """Attends from the last S columns to those before and up to each, mask [B, S, keys]; see `attend`.

  A block of queries meets the keys up to its own end.  Four blocks leave 5/8 of whole sequences' products;
  with fewer than 32 queries a block costs more to compile than it saves.
  """
  S, before = q.shape[1], k.shape[1] - q.shape[1]
  blocks = min(4, -(-S // 32))
  outs = []
  for start, end in pairwise(S * block // blocks for block in range(blocks + 1)):
    own, seen = slice(start, end), slice(before + end)
    outs.append(attend(q[:, own], k[:, seen], v[:, seen], mask[:, own, seen], scale, cap))
  return jnp.concatenate(outs, axis=1)


def attend(q, k, v, mask, scale: float, cap: float = 0.0):
  """Returns softmax(scale q k) v [B, S, N, H].  q [B, S, N, H]; k, v [B, keys, K, H]; mask [B, S, keys].

  Scores and softmax are float32.  A query that sees no key averages all keys: finite, and unused.  Queries
  are turned before they meet the keys, or XLA would turn their scores, which are many more.
  """
  B, S, N, H = q.shape
  K, keys, G = k.shape[2], k.shape[1], N // k.shape[2]
  q = q.reshape(B, S, K, G, H).swapaxes(1, 2).reshape(B, K, S * G, H)  # columns first: a mesh may cut them
  k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)
  scores = jnp.einsum("bkqh,bkth->bkqt", q, k, preferred_element_type=jnp.float32)
  scores = softcap(scores * scale, cap).reshape(B, K, S, G, keys)
  mask = jnp.broadcast_to(mask[:, None, :, None], scores.shape)
  scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
  weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype).reshape(B, K, S * G, keys)
  read = jnp.einsum("bkqt,bkth->bkqh", weights, v, preferred_element_type=jnp.float32).astype(v.dtype)
  return read.reshape(B, K, S, G, H).swapaxes(1, 2).reshape(B, S, N, H)
