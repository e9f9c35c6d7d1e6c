"""Sequences of different length share rows: what a pass over them processes is tokens, not padding.

A row has C = L + T - 1 columns, enough for the longest sequence (its last token is read by nobody), and
log-probs are taken of its response tokens only.  The host decides which sequence lies where, and the batch
carries that as `packing_index`; all else is made of it on the device.  Rows are processed in microbatches,
as many as are in use: shapes are static at the worst case, the work is not.

Each shard of the batch packs its own sequences, so that none moves between devices: D shards, n sequences
and as many rows on each, of which a microbatch has R.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from grpojax.types import Array


class PackSpec(NamedTuple):
  """Static sizes of packed rows."""

  response_budget: int  # T
  shards: int  # D, of the batch
  rows: int  # R, of a microbatch on each shard


class PackedRows(NamedTuple):
  """One microbatch: B = D * R rows of packed sequences."""

  tokens: Array  # [B, C] int32
  segment: Array  # [B, C] int32, equal within a sequence
  column: Array  # [B, C] int32, of the token before each response token; those of a row stand in front
  target: Array  # [B, C] int32, the response tokens
  wanted: Array  # [] int32, the most response tokens in a row
  routing: Array | None  # [B, C, layers, k], experts to replay; -1: none
  balance_mask: Array | None  # [B, C] bool


def balance(tokens: np.ndarray, shards: int) -> np.ndarray:
  """Returns an order [P] of prompts in which no shard has many more of their `tokens` [P] than another.

  A microbatch is computed on all shards, so the fullest decides.  Dealt to and fro, the longest first.
  """
  rounds = np.argsort(-tokens, kind="stable").reshape(-1, shards)
  rounds[1::2] = rounds[1::2, ::-1]
  return rounds.T.ravel()


def pack_sequences(prompt_length, length, *, columns: int, shards: int) -> np.ndarray:
  """Returns packing_index [P, G, 3] int32: first column, first log-prob and length of each sequence.

  `prompt_length` and `length` [P, G] are of whole shards.  Column and log-prob are counted through the rows
  of the sequence's shard, which have C `columns` and room for as many log-probs.
  """
  length = np.maximum(length, 1)
  size = np.stack([prompt_length + length - 1, length], axis=-1).reshape(shards, -1, 2)
  begin = np.empty_like(size)
  for shard, own in enumerate(size):
    for row, members in enumerate(fill_rows(own[:, 0], columns)):
      begin[shard, members] = row * columns + np.cumsum(own[members], axis=0) - own[members]
  packing_index = np.concatenate([begin, size[..., 1:]], axis=-1, dtype=np.int32)
  return packing_index.reshape(*length.shape, 3)


def fill_rows(size: np.ndarray, columns: int) -> list[list[int]]:
  """Returns each row's sequences, of `size` [n] columns: the longest left, then the best fit, by twos.

  First-fit decreasing leaves half as much again empty where only two or three fit in a row.
  """
  left, rows = np.argsort(size, kind="stable"), []
  while left.size:
    row, left = [left[-1]], left[:-1]
    room = columns - size[row[0]]
    while left.size and size[left[0]] <= room:
      sizes = size[left]
      one = np.arange(np.searchsorted(sizes, room, side="right"))  # those that fit; and the longest beside
      other = np.minimum(np.searchsorted(sizes, room - sizes[one], side="right"), one) - 1
      best = np.argmax(sizes[one] + np.where(other < 0, 0, sizes[other]))
      taken = [i for i in (best, other[best]) if i >= 0]
      row += left[taken].tolist()
      room, left = room - sizes[taken].sum(), np.delete(left, taken)
    rows.append(row)
  return rows


def num_microbatches(spec: PackSpec, packing_index, columns: int):
  """Returns the number [] int32 of microbatches in use, on the shard that has most of them."""
  return packing_index[..., 0].max() // (spec.rows * columns) + 1


def in_microbatch(spec: PackSpec, packing_index, columns: int, number):
  """Returns [P, G] bool: True for the sequences of microbatch `number`."""
  return packing_index[..., 0] // (spec.rows * columns) == number


def batch_logp(
  spec: PackSpec, logp_fn: Callable, params, tokens, prompt_length, routing, balance_mask, packing_index
):
  """Returns logp, entropy [P, G, T] and Routed of a whole batch; no routing where nothing is read."""
  inputs = tokens, prompt_length, routing, balance_mask
  logp_of = microbatch_logp(spec, logp_fn, *inputs, packing_index)
  columns = tokens.shape[-1] - 1

  def add(number, total):
    present = in_microbatch(spec, packing_index, columns, number)
    keep = lambda new, old: jnp.where(present.reshape(*present.shape, *[1] * (new.ndim - 2)), new, old)
    logp, entropy, routed = logp_of(params, number)
    old_logp, old_entropy, old = total
    if routed is not None:
      load = None if routed.load is None else old.load + routed.load
      routed = routed._replace(experts=keep(routed.experts, old.experts), load=load)
    return keep(logp, old_logp), keep(entropy, old_entropy), routed

  with jax.named_scope("microbatches"):
    n = num_microbatches(spec, packing_index, columns)
    return jax.lax.fori_loop(0, n, add, zeros_of(logp_of, params, 0))


def zeros_of(fn: Callable, *args):
  """Returns zeros, shaped as what fn(*args) returns."""
  return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(fn, *args))


def microbatch_logp(
  spec: PackSpec, logp_fn: Callable, tokens, prompt_length, routing, balance_mask, packing_index
) -> Callable:
  """Returns logp(params, number) of a microbatch, from `logp_fn(params, PackedRows)` -> [B, C] each.

  It returns logp, entropy [P, G, T], and Routed with experts [P, G, C, layers, k], -1 on padding.  Of
  sequences that are not `in_microbatch`, and behind a response's end, they are finite garbage.
  """
  S = tokens.shape[-1]
  C, T = S - 1, spec.response_budget
  rows_of = pack_rows(spec, tokens, prompt_length, routing, balance_mask, packing_index)

  def one(params, number):
    logp, entropy, routed = logp_fn(params, rows_of(number))
    column, slot = (packing_index[..., i] - number * spec.rows * C for i in (0, 1))
    logp, entropy = (_unpack(spec, x, slot[..., None] + jnp.arange(T)[None, None]) for x in (logp, entropy))
    if routed is not None:
      since = jnp.arange(C)[None, None] - (S - T - prompt_length)[..., None]
      own = (since >= 0) & (since < (prompt_length + packing_index[..., 2] - 1)[..., None])
      experts = _unpack(spec, routed.experts, column[..., None] + since)
      routed = routed._replace(experts=jnp.where(own[..., None, None], experts, -1))
    return logp, entropy, routed

  return one


def pack_rows(spec: PackSpec, tokens, prompt_length, routing, balance_mask, packing_index) -> Callable:
  """Returns rows_of(number) -> PackedRows of a microbatch.

  The columns behind a row's last sequence hold what stands behind that sequence in the batch.
  """
  T, D, R = spec
  C, L = tokens.shape[-1] - 1, tokens.shape[-1] - T
  by_shard = lambda x: None if x is None else x.reshape(D, -1, *x.shape[2:])
  fields = map(by_shard, (tokens, prompt_length, routing, balance_mask, packing_index))
  tokens, prompt_length, routing, balance_mask, packing_index = fields
  of_columns, of_slots = (_spread(spec, packing_index[..., i], C) for i in (0, 1))
  by_row = lambda x: x.reshape(D * R, -1, *x.shape[2:])

  def rows_of(number) -> PackedRows:
    cut = lambda x: jax.lax.dynamic_slice_in_dim(x, number * R, R, axis=1).reshape(D, -1)
    whose, since = map(cut, of_columns)
    at = L - _take(prompt_length, whose) + since
    inside, at = at < C, jnp.minimum(at, C - 1)
    replay = count = None
    if routing is not None:
      replay = by_row(jnp.where(inside[..., None, None], _take(routing, whose, at), -1))
    if balance_mask is not None:
      count = by_row(inside & _take(balance_mask, whose, at))
    rows = by_row(_take(tokens, whose, at)), by_row(whose)
    whose, since = map(cut, of_slots)
    column = jnp.minimum(_take(packing_index[..., 0] % C + prompt_length - 1, whose) + since, C - 1)
    target = _take(tokens, whose, jnp.minimum(L + since, C))
    begin, length = packing_index[..., 1] % C, packing_index[..., 2]
    behind = jnp.where(in_microbatch(spec, packing_index, C, number), begin + length, 0)
    return PackedRows(*rows, by_row(column), by_row(target), behind.max(), replay, count)

  return rows_of


def _spread(spec: PackSpec, begin, width: int):
  """Returns (whose, since) [D, rows, width] of every column, for sequences that `begin` [D, n] in these rows.

  `whose` is the sequence that the column belongs to, `since` how far into it, or behind it, the column is.
  A row without any is behind the end of the first.
  """
  D, n = begin.shape
  rows = -(-n // spec.rows) * spec.rows  # whole microbatches
  number = jnp.arange(1, n + 1, dtype=jnp.int32)
  mark = jax.vmap(lambda b: jnp.zeros(rows * width, jnp.int32).at[b].set(number))(begin)
  mark, column = mark.reshape(D, rows, width), jnp.arange(width)[None, None]
  start = jax.lax.cummax(jnp.where(mark > 0, column, 0), axis=2)
  whose = jnp.take_along_axis(mark, start, axis=2)
  return jnp.maximum(whose - 1, 0), jnp.where(whose > 0, column - start, width)


def _unpack(spec: PackSpec, x, index):
  """Returns [P, G, m, ...]: the entries of a microbatch's x [B, width, ...] at `index` [P, G, m], clipped."""
  flat = x.reshape(spec.shards, -1, *x.shape[2:])
  index = jnp.clip(index, 0, flat.shape[1] - 1)
  return _take(flat, index.reshape(spec.shards, -1)).reshape(*index.shape, *x.shape[2:])


def _take(x, *index):
  """Returns [D, m, ...]: on each shard the entries of x [D, ...] at every `index` [D, m]."""
  return jax.vmap(lambda x, index: x[index])(x, index)
