"""Attention over a prompt that many rows share, and over each row's own tokens, both where they lie.

A prompt's keys and values exist once for its G samples.  Queries are small and caches are not, so the
queries travel: they are sorted to their prompts, read there, and the answers sorted back.  A row's own
tokens lie in a ring that all rows write at the same column, by one slice in place, whatever their
lengths: the row with t own tokens reads the last t columns.  The two parts of a softmax are joined by
their running maxima (https://arxiv.org/abs/1805.02867).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from grpojax.models import int8
from grpojax.models.parts import softcap


class Kv(NamedTuple):
  """Keys and values of one layer, laid out as both products read them: no transposed copy is made.

  Heads come first because TPUs' compiler wants them there, and would copy a loop's caches where it begins.
  """

  keys: jax.Array | int8.Int8  # [K, B, H, columns]
  values: jax.Array | int8.Int8  # [K, B, columns, H]


def laid_out(keys, values, kv_cache: str) -> Kv:
  """keys and values [B, columns, K, H], as a layer computes them; kv_cache "int8" rounds them."""
  if kv_cache == "int8":
    keys, values = int8.rounded(keys, (-1,)), int8.rounded(values, (-1,))
  lay = lambda tree, *axes: jax.tree.map(lambda x: x.transpose(axes), tree)  # noqa: E731
  return Kv(lay(keys, 2, 0, 3, 1), lay(values, 2, 0, 1, 3))


def write(kv: Kv, new: Kv, column) -> Kv:
  """`new`, of one column, at the same column of every row."""

  def update(old, new, axis):
    return jax.tree.map(
      lambda x, y: jax.lax.dynamic_update_slice_in_dim(x, y, column, axis=axis), old, new
    )

  return Kv(update(kv.keys, new.keys, 3), update(kv.values, new.values, 2))


class Part(NamedTuple):
  """A softmax over some of the keys, not yet divided by its total.  All float32."""

  read: jax.Array  # [B, K, M, H]
  top: jax.Array  # [B, K, M, 1], the largest score
  total: jax.Array  # [B, K, M, 1], sum of exp(score - top)


def part(q, kv: Kv, mask, scale: float, cap: float) -> Part:
  """q [B, K, M, H], mask [B, 1 or M, columns].  A query that sees no key has total 0."""
  keys, values = int8.read(kv.keys, q.dtype), int8.read(kv.values, q.dtype)
  q = q.swapaxes(0, 1)
  scores = jnp.einsum("kbmh,kbhc->kbmc", q, keys, preferred_element_type=jnp.float32)
  mask = jnp.broadcast_to(mask[None], scores.shape)
  scores = jnp.where(mask, softcap(scores * scale, cap), jnp.finfo(jnp.float32).min)
  top = scores.max(axis=-1, keepdims=True)
  weights = jnp.where(mask, jnp.exp(scores - top), 0.0)
  weigh = weights.astype(q.dtype)
  read = jnp.einsum("kbmc,kbch->kbmh", weigh, values, preferred_element_type=jnp.float32)
  return Part(*(x.swapaxes(0, 1) for x in (read, top, weights.sum(axis=-1, keepdims=True))))


def join(a: Part, b: Part):
  """The whole softmax's answer, [B, K, M, H] float32.  One of the parts must have seen a key."""
  top = jnp.maximum(a.top, b.top)
  of_a, of_b = jnp.exp(a.top - top), jnp.exp(b.top - top)
  return (of_a * a.read + of_b * b.read) / (of_a * a.total + of_b * b.total)


class Order(NamedTuple):
  """Which slot works on which request, on each of D shards, both ways."""

  request: jax.Array  # [D, S] int32, 0 .. Bl - 1; beyond: the slot idles
  slot: jax.Array  # [D, Bl] int32; of no meaning where no slot works on the request

  def to_prompts(self, x, group_size: int):
    """x [D * S, K, m, H] -> [P, K, G * m, H]: what the samples of a prompt ask, side by side."""
    _, K, m, H = x.shape
    x = _pick(x, self.slot).reshape(-1, group_size, K, m, H)
    return x.swapaxes(1, 2).reshape(-1, K, group_size * m, H)

  def to_slots(self, x, group_size: int):
    """The inverse; idle slots get any row."""
    P, K, M, H = x.shape
    x = x.reshape(P, K, group_size, M // group_size, H).swapaxes(1, 2)
    at = jnp.minimum(self.request, self.slot.shape[1] - 1)
    return _pick(x.reshape(P * group_size, K, -1, H), at)


def order(request, requests: int) -> Order:
  """request [D, S] -> both ways."""
  place = lambda r: jnp.zeros(requests, jnp.int32).at[r].set(jnp.arange(r.size), mode="drop")  # noqa: E731
  return Order(request, jax.vmap(place)(request))


def _pick(x, index):
  """x [D * n, ...], index [D, m] within each of the D parts -> [D * m, ...]."""
  parts = x.reshape(index.shape[0], -1, *x.shape[1:])
  return jax.vmap(lambda a, i: a[i])(parts, index).reshape(-1, *x.shape[1:])
