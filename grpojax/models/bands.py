"""Attention of packed rows in bands: a block of queries meets the keys that it may see, and few others.

A token of packed rows sees its own response and the prompt before it.  The response stands together, in no
more columns than its budget; the prompt may stand anywhere before it in the row.  Queries are cut in blocks
of one size.  A block meets as many columns as a prompt can have, from where the prompt of its first query
begins, then the blocks before it that a response can reach back to, and its own; the prompts of its other
queries begin in the block.  So scores grow with a row's columns, and not with their square.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from grpojax.models.attention import angles, attend, positions, rotate_by_product, sequence_positions

LEAST = 32  # queries of a block; with fewer, its keys take longer to gather than scores are saved


class Cut(NamedTuple):
  """Says how rows are cut in blocks of queries."""

  size: int  # columns of a block
  before: int  # blocks before its own that it meets
  prompt: int  # columns of the longest prompt

  @property
  def keys(self) -> int:
    """Returns the number of keys that a query is scored with."""
    return self.prompt + (self.before + 1) * self.size


class View(NamedTuple):
  """Mask and rotary angles of packed rows in bands; as `attention.View`."""

  cut: Cut
  met: jax.Array  # [B, blocks * keys] int32, columns that the blocks meet
  mask: jax.Array  # [B * blocks, size, keys] bool
  distance: jax.Array  # [B * blocks, size, keys] int32, positions from a key to its query
  cos: jax.Array  # [tables, B, S, H / 2] float32
  sin: jax.Array

  def of(self, window, table):
    """Returns (attention, turn) of a layer, as `Block` takes them; None is no window, or the only table."""
    mask = self.mask if window is None else self.mask & (self.distance < window)
    table = 0 if table is None else table

    def attention(q, k, v, scale, cap):
      met = _met_by_blocks(self.cut, self.met, jnp.concatenate([k, v], axis=2))
      read = attend(_in_blocks(self.cut, q), *jnp.split(met, [k.shape[2]], axis=2), mask, scale, cap)
      read = read.reshape(len(q), -1, *q.shape[2:])[:, : q.shape[1]]
      return checkpoint_name(read, "attention"), (k, v)

    # XLA for CPUs turns halves and gathers what it turned number by number, and a product's output at once.
    return attention, partial(rotate_by_product, rope=(self.cos[table], self.sin[table]))


def cut(columns: int, prompt: int, response: int) -> Cut | None:
  """Returns the cut that scores the fewest pairs of rows; prompts and responses have so many columns at most.

  None where `attention.attend_causally`, which scores 5/8 of all pairs, scores as few.
  """
  size = np.arange(LEAST, columns)
  before = -(-(response - 1) // size)
  pairs = _pairs(Cut(size, before, prompt), columns)
  if not len(size) or pairs.min() >= 5 / 8 * columns**2:
    return None
  best = pairs.argmin()
  return Cut(int(size[best]), int(before[best]), prompt)


def keys_scored(columns: int, prompt: int, response: int) -> float:
  """Returns the number of keys that a query of such rows is scored with, on average."""
  best = cut(columns, prompt, response)
  return _pairs(best, columns) / columns if best else 5 / 8 * columns


def _pairs(cut: Cut, columns: int):
  """Returns how many pairs of a query and a key a row scores, its last block's empty columns among them.

  Of many cuts at once where `cut` has arrays.
  """
  return -(-columns // cut.size) * cut.size * cut.keys


def view(cut: Cut, segment, frequencies, response=None) -> View:
  """Returns the view that packed rows have of themselves; as `attention.sequence_view`."""
  B, S = segment.shape
  at, begin = sequence_positions(segment, response), jnp.arange(0, S, cut.size)[None]
  prompt_at = begin - positions(segment)[:, :: cut.size]  # [B, blocks]
  band_at = jnp.broadcast_to(begin - cut.before * cut.size, prompt_at.shape)
  from_here = lambda first, columns: first[..., None] + jnp.arange(columns)[None, None]
  of_prompt, of_band = from_here(prompt_at, cut.prompt), from_here(band_at, cut.keys - cut.prompt)
  of_prompt = jnp.where(of_prompt < band_at[..., None], of_prompt, S)  # S: seen by none
  column = jnp.concatenate([of_prompt, of_band], axis=2)
  met = jnp.clip(column, 0, S - 1).reshape(B, -1)

  of_query = lambda x: _in_blocks(cut, x)[:, :, None]
  of_key = lambda x: _met_by_blocks(cut, met, x)[:, None]
  column, query = column.reshape(-1, 1, cut.keys), of_query(jnp.broadcast_to(jnp.arange(S)[None], (B, S)))
  mask = (column >= 0) & (column <= query) & (of_key(segment) == of_query(segment))
  if response is not None:
    mask &= (of_key(response) == 0) | (of_key(response) == of_query(response))
  return View(cut, met, mask, of_query(at) - of_key(at), *angles(at, frequencies))


def _in_blocks(cut: Cut, x):
  """Returns [B * blocks, size, ...] of x [B, S, ...], with zeros behind its last column."""
  x = jnp.pad(x, [(0, 0), (0, -x.shape[1] % cut.size), *[(0, 0)] * (x.ndim - 2)])
  return x.reshape(-1, cut.size, *x.shape[2:])


def _met_by_blocks(cut: Cut, met, x):
  """Returns [B * blocks, keys, ...] of x [B, S, ...]: the columns that are `met`."""
  met = jax.vmap(lambda x, met: x.at[met].get(mode="promise_in_bounds"))(x, met)
  return met.reshape(-1, cut.keys, *x.shape[2:])
