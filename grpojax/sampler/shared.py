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

from grpojax.models.parts import softcap


class Part(NamedTuple):
  """A softmax over some of the keys, not yet divided by its total.  All float32."""

  read: jax.Array  # [B, S, N, H]
  top: jax.Array  # [B, S, N], the largest score
  total: jax.Array  # [B, S, N], sum of exp(score - top)


def part(q, k, v, mask, scale: float, cap: float) -> Part:
  """q [B, S, N, H], k and v [B, keys, K, H], mask [B, S, keys].  No key seen: total 0."""
  B, S, N, H = q.shape
  K = k.shape[2]
  q = q.reshape(B, S, K, N // K, H)
  scores = jnp.einsum("bskgh,btkh->bkgst", q, k, preferred_element_type=jnp.float32)
  mask = jnp.broadcast_to(mask[:, None, None], scores.shape)
  scores = jnp.where(mask, softcap(scores * scale, cap), jnp.finfo(jnp.float32).min)
  top = scores.max(axis=-1, keepdims=True)
  weights = jnp.where(mask, jnp.exp(scores - jnp.broadcast_to(top, scores.shape)), 0.0)
  read = jnp.einsum("bkgst,btkh->bskgh", weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
  by_query = lambda x: x.transpose(0, 3, 1, 2).reshape(B, S, N)  # noqa: E731
  return Part(read.reshape(B, S, N, H), by_query(top[..., 0]), by_query(weights.sum(axis=-1)))


def join(a: Part, b: Part):
  """The whole softmax's answer, [B, S, N, H] float32.  One of the parts must have seen a key."""
  top = jnp.maximum(a.top, b.top)
  of_a, of_b = jnp.exp(a.top - top), jnp.exp(b.top - top)
  total = (of_a * a.total + of_b * b.total)[..., None]
  read = of_a[..., None] * a.read + of_b[..., None] * b.read
  return read / jnp.broadcast_to(total, read.shape)


class Order(NamedTuple):
  """Which slot works on which request, on each of D shards, both ways."""

  request: jax.Array  # [D, S] int32, 0 .. Bl - 1; beyond: the slot idles
  slot: jax.Array  # [D, Bl] int32; of no meaning where no slot works on the request

  def by_request(self, x):
    """x [D * S, ...] -> [D * Bl, ...]."""
    return _pick(x, self.slot)

  def by_slot(self, x):
    """x [D * Bl, ...] -> [D * S, ...]."""
    return _pick(x, jnp.minimum(self.request, self.slot.shape[1] - 1))


def order(request, requests: int) -> Order:
  """request [D, S] -> both ways."""
  place = lambda r: jnp.zeros(requests, jnp.int32).at[r].set(jnp.arange(r.size), mode="drop")  # noqa: E731
  return Order(request, jax.vmap(place)(request))


def _pick(x, index):
  """x [D * n, ...], index [D, m] within each of the D parts -> [D * m, ...]."""
  parts = x.reshape(index.shape[0], -1, *x.shape[1:])
  return jax.vmap(lambda a, i: a[i])(parts, index).reshape(-1, *x.shape[1:])
