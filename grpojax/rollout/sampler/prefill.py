"""Prompts of any lengths, read end to end: packed and in pieces, so that hardly a column is padding.

The prompts of a shard form one stream.  It is read in chunks of C tokens; a token sees itself and the
earlier tokens of its own prompt, which lie in its chunk or in the L columns before it.  Every chunk is the
same program, and as many run as the step's prompts fill: work and activations do not grow with the
longest prompt, and a prompt may be longer than a chunk.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from grpojax.models import Decoder, by_rows, unrouted


class Read(NamedTuple):
  """Keys and values of P prompts, each left-padded to L columns; what lies in the padding means nothing."""

  hidden: jax.Array  # [P, D], of each prompt's last token
  cache: list[tuple[jax.Array, jax.Array]]  # per layer keys and values [P, L, K, H]
  routing: jax.Array | None  # [P, L, layers, k] int8 or int16, -1 on padding, if it is recorded
  columns: jax.Array  # [] int32, that were computed; beyond the prompts' tokens they were padding


class Stream(NamedTuple):
  """The prompts of D shards end to end, N columns each."""

  tokens: jax.Array  # [D, N] int32
  position: jax.Array  # [D, N] int32, within the prompt
  end: jax.Array  # [D, prompts] int32, the column behind each prompt


class Kept(NamedTuple):
  """Per column of the streams; keys and values begin L columns earlier, so that a chunk can look back."""

  keys: jax.Array  # [layers, D, L + N, K, H]
  values: jax.Array
  routing: jax.Array | None  # [D, L + N, layers, k]


def read(decoder: Decoder, tokens, length, *, chunk: int, shards: int, record_routing: bool = False) -> Read:
  """Reads prompts, tokens [P, L] left-padded, length [P], 0: left out; returns what decoding needs."""
  s, (P, L) = decoder.spec, tokens.shape
  stream = end_to_end(tokens.reshape(shards, -1, L), length.reshape(shards, -1), chunk)
  whole = length.reshape(shards, -1) > 0

  def body(carry):
    i, hidden, kept = carry
    start = i * chunk
    cut = lambda x: jax.lax.dynamic_slice_in_dim(x, start, chunk, axis=1)
    before = tuple(jax.lax.dynamic_slice_in_dim(x, start, L, axis=2) for x in kept[:2])
    x, (keys, values), routed = decoder.extend(cut(stream.tokens), cut(stream.position), before)
    put = lambda x, new, axis: jax.lax.dynamic_update_slice_in_dim(x, new, L + start, axis)
    routing = put(kept.routing, by_rows(routed.experts, s), 1) if record_routing else None
    last = stream.end - 1 - start
    here = whole & (last >= 0) & (last < chunk)
    at_last = jnp.take_along_axis(x, jnp.clip(last, 0, chunk - 1)[..., None], axis=1)
    hidden = jnp.where(here[..., None], at_last, hidden)
    return i + 1, hidden, Kept(put(kept.keys, keys, 2), put(kept.values, values, 2), routing)

  columns = L + stream.tokens.shape[1]
  kv = jnp.zeros((s.num_hidden_layers, shards, columns, s.num_key_value_heads, s.head_dim), s.dtype)
  routing = unrouted(s, shards, columns) if record_routing else None
  start = jnp.int32(0), jnp.zeros((shards, P // shards, s.hidden_size), s.dtype), Kept(kv, kv, routing)
  more = lambda carry: carry[0] * chunk < stream.end.max()
  with jax.named_scope("prefill"):
    chunks, hidden, kept = jax.lax.while_loop(more, body, start)
  lay = lambda x: by_prompt(x, stream.end, L)
  cache = [(lay(k), lay(v)) for k, v in zip(kept.keys, kept.values, strict=True)]
  if record_routing:
    real = jnp.arange(L)[None] >= L - length[:, None]
    routing = jnp.where(real[..., None, None], lay(kept.routing), -1)
  return Read(hidden.reshape(P, -1), cache, routing, chunks * chunk * shards)


def end_to_end(tokens, length, chunk: int) -> Stream:
  """Lays tokens [D, prompts, L] left-padded, length [D, prompts] end to end, in streams of whole chunks."""
  D, prompts, L = tokens.shape
  column = jnp.arange(-(-prompts * L // chunk) * chunk)
  end = jnp.cumsum(length, axis=1)
  of = jax.vmap(lambda e: jnp.searchsorted(e, column, side="right"))(end)  # skips prompts without a token
  of = jnp.minimum(of, prompts - 1)
  behind = jnp.take_along_axis(end, of, axis=1) - column[None]  # tokens to go, this one included
  index = of * L + jnp.clip(L - behind, 0, L - 1)
  position = jnp.take_along_axis(length, of, axis=1) - behind
  return Stream(jnp.take_along_axis(tokens.reshape(D, -1), index, axis=1), position, end)


def by_prompt(x, end, L: int):
  """Cuts streams x [D, L + N, ...], L columns late, that end at [D, prompts] into prompts [P, L, ...]."""
  of_one = jax.vmap(lambda x, e: jax.lax.dynamic_slice_in_dim(x, e, L), in_axes=(None, 0))
  return jax.vmap(of_one)(x, end).reshape(-1, L, *x.shape[2:])
