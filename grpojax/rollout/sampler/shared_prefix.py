"""Attention over a prompt that many rows share, and over each row's own tokens, both where they lie.

A prompt's keys and values exist once for its G samples.  Queries are small and caches are not, so the
queries travel: they are sorted to their prompts, read there, and the answers sorted back.  Prompts that no
row works on, because they wait or all their samples have ended, are not read.  A row's own tokens lie in a
ring that all rows write at the same column, by one slice in place, whatever their lengths: the row with t
own tokens reads the last t columns.  The two parts of a softmax are joined by their running maxima
(https://arxiv.org/abs/1805.02867).
"""

from functools import reduce
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
  """Lays out keys and values [B, columns, K, H] as a layer computes them, kept as `kv_cache` says."""
  if kv_cache == "int8":
    keys, values = int8.quantize(keys, (-1,)), int8.quantize(values, (-1,))
  elif kv_cache == "float32":
    keys, values = keys.astype(jnp.float32), values.astype(jnp.float32)
  lay = lambda tree, *axes: jax.tree.map(lambda x: x.transpose(axes), tree)
  return Kv(lay(keys, 2, 0, 3, 1), lay(values, 2, 0, 1, 3))


def write(kv: Kv, new: Kv, column) -> Kv:
  """Writes `new`, of one column, at the same column of every row."""

  def update(old, new, axis):
    return jax.tree.map(lambda x, y: jax.lax.dynamic_update_slice_in_dim(x, y, column, axis), old, new)

  return Kv(update(kv.keys, new.keys, 3), update(kv.values, new.values, 2))


class Part(NamedTuple):
  """A softmax over some of the keys, not yet divided by its total.  All float32."""

  read: jax.Array  # [B, K, M, H]
  top: jax.Array  # [B, K, M, 1], the largest score
  total: jax.Array  # [B, K, M, 1], sum of exp(score - top)


def part(q, kv: Kv, mask, scale: float, cap: float) -> Part:
  """Returns a Part of the softmax, q [B, K, M, H], mask [B, 1 or M, columns]; of no visible key: total 0."""
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


def join(*parts: Part):
  """Returns the whole softmax's answer, [B, K, M, H] float32.  One of the parts must have seen a key."""
  top = reduce(jnp.maximum, (part.top for part in parts))
  shares = [jnp.exp(part.top - top) for part in parts]
  over_all = lambda xs: sum(share * x for share, x in zip(shares, xs, strict=True))
  return over_all(part.read for part in parts) / over_all(part.total for part in parts)


class Rings(NamedTuple):
  """The slots' own tokens, in arrays of some slots of every shard each: n of D * S / n rows.

  Several, where a compiler brings such arrays beside the cores ahead of time, and one would not fit there.
  """

  pieces: tuple[Kv, ...]

  def of(self, x, shards: int, axis: int = 0) -> list:
    """Returns the rows of each piece of x [..., D * S, ...]."""
    n, before, after = len(self.pieces), x.shape[:axis], x.shape[axis + 1 :]
    x = jnp.moveaxis(x.reshape(*before, shards, n, -1, *after), axis + 1, 0)
    return [piece.reshape(*before, -1, *after) for piece in x]

  def read(self, q, mask, shards: int, scale: float, cap: float) -> Part:
    """As `part`, of all rows."""
    asked = zip(self.of(q, shards), self.pieces, self.of(mask, shards), strict=True)
    parts = [part(*one, scale, cap) for one in asked]
    if len(parts) == 1:
      return parts[0]
    together = lambda *xs: jnp.stack([x.reshape(shards, -1, *x.shape[1:]) for x in xs], axis=1)
    return Part(*(together(*xs).reshape(-1, *xs[0].shape[1:]) for xs in zip(*parts, strict=True)))

  def write(self, new: Kv, column, shards: int) -> "Rings":
    """As `write`, for all rows."""
    news = self.cut(new, shards).pieces
    return Rings(tuple(write(old, new, column) for old, new in zip(self.pieces, news, strict=True)))

  def cut(self, kv: Kv, shards: int) -> "Rings":
    """Cuts keys and values of all rows into pieces as these are cut."""
    leaves, tree = jax.tree.flatten(kv)
    of_pieces = zip(*(self.of(x, shards, axis=1) for x in leaves), strict=True)
    return Rings(tuple(jax.tree.unflatten(tree, piece) for piece in of_pieces))


class Block(NamedTuple):
  """Prompts of each of D shards, side by side, and the slots that work on their requests, both ways."""

  begin: jax.Array  # [D] int32, the first of them in its shard
  slot: jax.Array  # [D, width * G] int32, of each request; of no meaning where no slot works on it
  row: jax.Array  # [D, S] int32, of each slot's request; of no meaning where it is of another prompt
  here: jax.Array  # [D, S] bool: the slot works on one of these prompts

  def of(self, x, width: int, axis: int = 0):
    """Returns x [..., P, ...] as [..., D * width, ...]."""
    D, before, after = len(self.begin), x.shape[:axis], x.shape[axis + 1 :]
    if x.shape[axis] == D * width:
      return x
    cut = jax.vmap(lambda a, i: jax.lax.dynamic_slice_in_dim(a, i, width, axis), (axis, 0), axis)
    return cut(x.reshape(*before, D, -1, *after), self.begin).reshape(*before, D * width, *after)

  def to_prompts(self, x, group_size: int):
    """Puts what a prompt's samples ask side by side: x [D * S, K, m, H] -> [D * width, K, G * m, H]."""
    _, K, m, H = x.shape
    x = _pick(x, self.slot).reshape(-1, group_size, K, m, H)
    return x.swapaxes(1, 2).reshape(-1, K, group_size * m, H)

  def to_slots(self, x, group_size: int):
    """Inverts `to_prompts`; slots that are not here get any row."""
    P, K, M, H = x.shape
    x = x.reshape(P, K, group_size, M // group_size, H).swapaxes(1, 2)
    return _pick(x.reshape(P * group_size, K, -1, H), self.row)


class Order(NamedTuple):
  """Which prompts the slots work on: those are read, block by block, and no other."""

  blocks: Block  # stacked, those first that some slot works on
  count: jax.Array  # [] int32, of those; the most of any shard
  width: int  # prompts of a block
  group_size: int  # G

  def read(self, q, of_prompts) -> Part:
    """Returns what the slots read of their prompts with q [D * S, K, m, H]; idle ones read something finite.

    of_prompts(q [D * width, K, G * m, H], a block) -> Part.
    """

    def of_block(i):
      block = jax.tree.map(lambda x: x[i], self.blocks)
      read = of_prompts(block.to_prompts(q, self.group_size), block)
      return block.here.reshape(-1, 1, 1, 1), Part(*(block.to_slots(x, self.group_size) for x in read))

    def add(i, found):
      here, new = of_block(i)
      return Part(*(jnp.where(here, x, old) for x, old in zip(new, found, strict=True)))

    if len(self.blocks.begin) == 1:
      return of_block(0)[1]
    none = jnp.zeros(q.shape, jnp.float32)
    return jax.lax.fori_loop(0, self.count, add, Part(none, none[..., :1], none[..., :1]))


def order(request, prompts: int, group_size: int) -> Order:
  """request [D, S] int32: of a shard 0 .. prompts * G - 1, those of a prompt side by side; beyond: none."""
  S, n, G = request.shape[1], prompts, group_size
  width = block_width(n, S, G)
  blocks = jnp.arange(-(-n // width))

  def begins(block):
    return jnp.minimum(block * width, n - width)  # the last may overlap the one before it

  def rows(begin):
    """Returns [blocks, D, S], the row of each slot's request and if it has one; begin [blocks, 1 or D]."""
    row = request[None] - begin[..., None] * G
    return row, (row >= 0) & (row < width * G)

  worked = rows(begins(blocks[:, None]))[1].any(axis=2)  # [blocks, D]
  begin = begins(jnp.argsort(~worked, axis=0))
  row, here = rows(begin)
  row = jnp.where(here, row, width * G)
  number = lambda r: jnp.zeros(width * G, jnp.int32).at[r].set(jnp.arange(S), mode="drop")
  slot = jax.vmap(jax.vmap(number))(row)
  return Order(Block(begin, slot, row, here), worked.sum(axis=0).max(), width, G)


def block_width(prompts: int, slots: int, group_size: int) -> int:
  """Prompts of a shard that are read at a time: as many as its slots can work on in whole groups."""
  return min(prompts, -(-slots // group_size))


def _pick(x, index):
  """Gathers x [D * n, ...] at [D, m] within each of D parts: [D * m, ...]; beyond a part: its last."""
  parts = x.reshape(index.shape[0], -1, *x.shape[1:])
  return jax.vmap(lambda a, i: a[i])(parts, index).reshape(-1, *x.shape[1:])
