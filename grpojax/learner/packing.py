"""Sequences of different length share rows: what a pass over them processes is tokens, not padding.

Where `shared`, a prompt is computed once for those of its responses that lie in its row: behind it stand
these responses, each of which sees the prompt and itself.  The last token of a sequence is read by nobody,
and log-probs are taken of response tokens only.  The host decides which sequence lies where, and the batch
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
  columns: int  # C, of a row; enough for the longest sequence
  shared: bool  # whether a prompt is computed once for its responses in a row; attention.sequence_view


class PackedRows(NamedTuple):
  """One microbatch: B = D * R rows of packed sequences."""

  tokens: Array  # [B, C] int32
  segment: Array  # [B, C] int32, equal within a prompt and its responses in this row
  response: Array | None  # [B, C] int32, equal within a response's context, 0 in a prompt; None: one a prompt
  column: Array  # [B, C] int32, of the token before each response token; those of a row stand in front
  target: Array  # [B, C] int32, the response tokens
  wanted: Array  # [] int32, the most response tokens in a row
  routing: Array | None  # [B, C, layers, k], experts to replay; -1: none
  balance_mask: Array | None  # [B, C] how often the load counts a token; bool where no prompt is shared
  kept: Array | None = None  # [B, C, K] int32, of each target: `types.Rollout`


def balance(tokens: np.ndarray, shards: int) -> np.ndarray:
  """Returns an order [P] of prompts in which no shard has many more of their `tokens` [P] than another.

  A microbatch is computed on all shards, so the fullest decides.  Dealt to and fro, the longest first.
  """
  rounds = np.argsort(-tokens, kind="stable").reshape(-1, shards)
  rounds[1::2] = rounds[1::2, ::-1]
  return rounds.T.ravel()


def pack_sequences(prompt_length, length, spec: PackSpec) -> np.ndarray:
  """Returns packing_index [P, G, 4] int32 of each sequence, which `microbatch_logp` describes.

  Its numbers are: first column of the prompt, first column of the response, first log-prob, tokens of the
  response (a sequence without any has one log-prob).  `prompt_length` and `length` [P, G] are of whole
  shards.  Column and log-prob are counted through the rows of the sequence's shard, which have room for as
  many log-probs as columns.
  """
  length = np.maximum(length, 1)
  index = np.empty((spec.shards, length.size // spec.shards, 4), np.int32)
  index[..., 3] = length.reshape(spec.shards, -1)
  own_prompts = prompt_length.reshape(spec.shards, -1, length.shape[1])
  own_lengths = length.reshape(own_prompts.shape)
  for place, prompts, lengths in zip(index, own_prompts, own_lengths, strict=True):
    blocks = _blocks(prompts, lengths, spec)
    for row, members in enumerate(fill_rows(np.array([block.size for block in blocks]), spec.columns)):
      column = slot = row * spec.columns
      for block in (blocks[i] for i in members):
        own = lengths.ravel()[block.sequences]
        place[block.sequences, 0] = column
        place[block.sequences, 1] = column + block.prompt + np.cumsum(own - 1) - (own - 1)
        place[block.sequences, 2] = slot + np.cumsum(own) - own
        column, slot = column + block.size, slot + own.sum()
  return index.reshape(*length.shape, 4)


class _Block(NamedTuple):
  """A prompt and responses of it that lie behind it in a row."""

  sequences: list[int]  # numbers of the shard's sequences
  prompt: int  # tokens of the prompt
  size: int  # columns, and at least as many as log-probs


def _blocks(prompts, lengths, spec: PackSpec) -> list[_Block]:
  """Returns the blocks of a shard's groups, `prompts` and `lengths` [groups, G]; few, if `shared`.

  A block has a column for each token of the prompt and each but the last of its responses; two or more
  responses of a prompt with fewer tokens than they are need columns for their log-probs.
  """
  G = lengths.shape[1]
  blocks = []
  for group, (of_prompt, own) in enumerate(zip(prompts.tolist(), lengths, strict=True)):
    parts = _share(of_prompt[0], own, spec.columns) if spec.shared else [[member] for member in range(G)]
    for members in parts:
      prompt = of_prompt[members[0]]
      columns = max(prompt, len(members)) + int((own[members] - 1).sum())
      blocks.append(_Block([group * G + member for member in members], prompt, columns))
  return blocks


def _share(prompt: int, lengths, columns: int) -> list[list[int]]:
  """Returns which of a prompt's responses, `lengths` [G], share a row: each lies in the first with room."""
  parts, left = [], []
  for member in np.argsort(-lengths, kind="stable").tolist():
    need = int(lengths[member]) - 1
    for part, members in enumerate(parts):
      more = need + (len(members) >= prompt)
      if more <= left[part]:
        members.append(member)
        left[part] -= more
        break
    else:
      parts.append([member])
      left.append(columns - max(prompt, 1) - need)
  return parts


def fill_rows(size: np.ndarray, columns: int) -> list[list[int]]:
  """Returns each row's blocks, of `size` [n] columns: the longest left, then the best fit, by twos.

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


def num_microbatches(spec: PackSpec, packing_index):
  """Returns the number [] int32 of microbatches in use, on the shard that has most of them."""
  return packing_index[..., 0].max() // (spec.rows * spec.columns) + 1


def in_microbatch(spec: PackSpec, packing_index, number):
  """Returns [P, G] bool: True for the sequences of microbatch `number`."""
  return packing_index[..., 0] // (spec.rows * spec.columns) == number


def tokens_read(prompt_length, packing_index):
  """Returns the number [] of columns that hold a token: a prompt counts once for its responses behind it."""
  column = packing_index[..., 0]
  before = jnp.tril(column[..., :, None] == column[..., None, :], -1).any(-1)
  return jnp.where(before, 0, prompt_length).sum() + (packing_index[..., 3] - 1).sum()


def batch_logp(
  spec: PackSpec, logp_fn: Callable, params, tokens, prompt_length, routing, balance_mask, packing_index,
  context=None, kept=None,
):  # fmt: skip
  """Returns logp, entropy [P, G, T] and Routed of a whole batch; no routing where nothing is read."""
  inputs = tokens, prompt_length, routing, balance_mask
  logp_of = microbatch_logp(spec, logp_fn, *inputs, packing_index, context, kept)

  def add(number, total, new):
    present = in_microbatch(spec, packing_index, number)
    keep = lambda new, old: jnp.where(present.reshape(*present.shape, *[1] * (new.ndim - 2)), new, old)
    (logp, entropy, routed), (old_logp, old_entropy, old) = new, total
    if routed is not None:
      load = None if routed.load is None else old.load + routed.load
      routed = routed._replace(experts=keep(routed.experts, old.experts), load=load)
    return keep(logp, old_logp), keep(entropy, old_entropy), routed

  return over_those_in_use(spec, packing_index, lambda number: logp_of(params, number), add)


def over_those_in_use(spec: PackSpec, packing_index, one: Callable, add: Callable):
  """Folds the microbatches in use: returns total, from zeros on total = add(number, total, one(number))."""
  one = jax.jit(one, inline=True)  # traced once: for the shapes of a total, and for the loop
  step = lambda number, total: add(number, total, one(number))
  with jax.named_scope("microbatches"):
    return jax.lax.fori_loop(0, num_microbatches(spec, packing_index), step, zeros_of(one, 0))


def zeros_of(fn: Callable, *args):
  """Returns zeros, shaped as what fn(*args) returns."""
  return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(fn, *args))


def microbatch_logp(
  spec: PackSpec, logp_fn: Callable, tokens, prompt_length, routing, balance_mask, packing_index,
  context=None, kept=None,
) -> Callable:  # fmt: skip
  """Returns logp(params, number) of a microbatch, from `logp_fn(params, PackedRows)` -> [B, C] each.

  It returns logp, entropy [P, G, T], and Routed with experts [P, G, L + T - 1, layers, k], -1 on padding.
  Of sequences that are not `in_microbatch`, and behind a response's end, they are finite garbage.
  """
  S, T = tokens.shape[-1], spec.response_budget
  rows_of = pack_rows(spec, tokens, prompt_length, routing, balance_mask, packing_index, context, kept)

  def one(params, number):
    logp, entropy, routed = logp_fn(params, rows_of(number))
    prompt_at, own_at, slot = (packing_index[..., i] - number * spec.rows * spec.columns for i in range(3))
    logp, entropy = (_unpack(spec, x, slot[..., None] + jnp.arange(T)[None, None]) for x in (logp, entropy))
    if routed is not None:
      since = jnp.arange(S - 1)[None, None] - (S - T - prompt_length)[..., None]
      read = (since >= 0) & (since < (prompt_length + packing_index[..., 3] - 1)[..., None])
      of_prompt = since < prompt_length[..., None]
      begin = jnp.where(of_prompt, prompt_at[..., None], (own_at - prompt_length)[..., None])
      experts = _unpack(spec, routed.experts, begin + since)
      routed = routed._replace(experts=jnp.where(read[..., None, None], experts, -1))
    return logp, entropy, routed

  return one


def pack_rows(
  spec: PackSpec, tokens, prompt_length, routing, balance_mask, packing_index, context=None, kept=None
) -> Callable:
  """Returns rows_of(number) -> PackedRows of a microbatch.

  The columns behind a row's last sequence hold what stands behind that sequence in the batch.  Contexts of a
  response (`types.Rollout.context`) are to attention what responses of one prompt are.
  """
  T, D, R, C, _ = spec
  S = tokens.shape[-1]
  L = S - T
  by_shard = lambda x: None if x is None else x.reshape(D, -1, *x.shape[2:])
  fields = map(by_shard, (tokens, prompt_length, routing, balance_mask, packing_index, context, kept))
  tokens, prompt_length, routing, balance_mask, packing_index, context, kept = fields
  prompt_at, own_at, slot, length = (packing_index[..., i] for i in range(4))
  if spec.shared and balance_mask is not None:
    balance_mask = _with_sharers(balance_mask, prompt_at, L)
  of_prompts, of_slots = _spread(spec, prompt_at, length > 0), _spread(spec, slot, length > 0)
  of_responses = _spread(spec, own_at, length > 1)
  by_row = lambda x: x.reshape(D * R, -1, *x.shape[2:])

  def rows_of(number) -> PackedRows:
    cut = lambda x: jax.lax.dynamic_slice_in_dim(x, number * R, R, axis=1).reshape(D, -1)
    (prompt, of_prompt), (own, of_own) = map(cut, of_prompts), map(cut, of_responses)
    responding = of_own < of_prompt  # columns since the response began, and since its prompt did
    whose = jnp.where(responding, own, prompt)
    at = jnp.where(responding, L + of_own, L - _take(prompt_length, prompt) + of_prompt)
    inside, at = at < S - 1, jnp.minimum(at, S - 2)
    replay = count = None
    if routing is not None:
      replay = by_row(jnp.where(inside[..., None, None], _take(routing, whose, at), -1))
    if balance_mask is not None:
      count = by_row(jnp.where(inside, _take(balance_mask, whose, at), 0))
    rows = by_row(_take(tokens, whose, at)), by_row(prompt)
    response = None
    if spec.shared or context is not None:
      which = own if context is None else own * T + _take(context, own, jnp.minimum(of_own, T - 1))
      response = by_row(jnp.where(responding, which + 1, 0))
    whose, since = map(cut, of_slots)
    last = _take(prompt_at % C + prompt_length - 1, whose)
    column = jnp.where(since == 0, last, _take(own_at % C, whose) + since - 1)
    target = _take(tokens, whose, jnp.minimum(L + since, S - 1))
    behind = jnp.where(in_microbatch(spec, packing_index, number), slot % C + length, 0).max()
    column = by_row(jnp.minimum(column, C - 1))
    over = None if kept is None else by_row(_take(kept, whose, jnp.minimum(since, T - 1)))
    return PackedRows(*rows, response, column, by_row(target), behind, replay, count, over)

  return rows_of


def _with_sharers(counted, prompt_at, L: int):
  """Returns how often each token of `counted` [D, n, S] counts, float32: a prompt's for all that share it."""
  counted, sharing = jnp.asarray(counted, jnp.float32), prompt_at[:, :, None] == prompt_at[:, None, :]
  return counted.at[..., :L].set(jnp.einsum("dij,djs->dis", sharing.astype(jnp.float32), counted[..., :L]))


def _spread(spec: PackSpec, begin, there):
  """Returns (whose, since) [D, rows, C] of every column, for what begins at `begin` [D, n] and is `there`.

  `whose` is the sequence that began last, `since` how many columns ago.  Where none has begun in the row,
  that was C columns ago.  Of sequences with one beginning, a prompt's, it is any.
  """
  D, n = begin.shape
  rows, C = -(-n // spec.rows) * spec.rows, spec.columns  # whole microbatches
  number = jnp.where(there, jnp.arange(1, n + 1, dtype=jnp.int32)[None], 0)
  mark = jax.vmap(lambda b, x: jnp.zeros(rows * C, jnp.int32).at[b].max(x))(begin, number)
  mark, column = mark.reshape(D, rows, C), jnp.arange(C)[None, None]
  start = jax.lax.cummax(jnp.where(mark > 0, column, 0), axis=2)
  whose = jnp.take_along_axis(mark, start, axis=2)
  return jnp.maximum(whose - 1, 0), jnp.where(whose > 0, column - start, C)


def _unpack(spec: PackSpec, x, index):
  """Returns [P, G, m, ...]: the entries of a microbatch's x [B, width, ...] at `index` [P, G, m], clipped."""
  flat = x.reshape(spec.shards, -1, *x.shape[2:])
  index = jnp.clip(index, 0, flat.shape[1] - 1)
  return _take(flat, index.reshape(spec.shards, -1)).reshape(*index.shape, *x.shape[2:])


def _take(x, *index):
  """Returns [D, m, ...]: on each shard the entries of x [D, ...] at every `index` [D, m]."""
  return jax.vmap(lambda x, index: x[index])(x, index)
