"""Grouped-query attention and rotary positions, the reference implementation in plain jnp."""

import jax
import jax.numpy as jnp


def causal_mask(length: int, first):
  """[B, length, length] bool: key j is visible to query i iff first <= j <= i.  first [B]."""
  column = jnp.arange(length)
  causal = column[None, :] <= column[:, None]
  return causal[None] & (column[None, None, :] >= first[:, None, None])


def rotate(x, rope):
  """Rotary embedding, halves paired as in Hugging Face's Qwen2.  x [B, S, N, H], rope 2 x [B, S, H/2]."""
  cos, sin = (jnp.expand_dims(r, 2).astype(x.dtype) for r in rope)
  a, b = jnp.split(x, 2, axis=-1)
  cos, sin = jnp.broadcast_to(cos, a.shape), jnp.broadcast_to(sin, a.shape)
  return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attend(q, k, v, mask):
  """softmax(q k / sqrt(H)) v.  q [B, S, N, H]; k, v [B, keys, K, H]; mask [B, S, keys] -> [B, S, N, H].

  Scores and softmax in float32.  A query that sees no key (padding) averages all keys: finite, unused.
  """
  B, S, N, H = q.shape
  K = k.shape[2]
  q = q.reshape(B, S, K, N // K, H)
  scores = jnp.einsum("bskgh,btkh->bkgst", q, k, preferred_element_type=jnp.float32) * H**-0.5
  mask = jnp.broadcast_to(mask[:, None, None], scores.shape)
  scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
  weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
  return jnp.einsum("bkgst,btkh->bskgh", weights, v).reshape(B, S, N, H)
