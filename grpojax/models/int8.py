"""Eight bits for what the sampler reads: weights by output channel, keys and values by row, column, head.

Symmetric: x is close to int8 times a float32 scale, max |x| / 127, so that 0 stays 0.
Matrices are int8 while they lie in memory and are multiplied in the compute dtype; the learner never
sees them.  Embedding, head, routers, norms and biases stay as they are.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from grpojax.models import names
from grpojax.models.spec import Spec


class Int8(NamedTuple):
  """int8 values and their scales, in place of an array of keys or values."""

  values: jax.Array  # [B, S, K, H] int8
  scale: jax.Array  # [B, S, K, 1] float32

  @property
  def shape(self) -> tuple[int, ...]:
    return self.values.shape


def quantize(x, axes) -> Int8:
  """Quantizes x to int8 with one scale over all of `axes`; an all-zero slice gets the scale 0."""
  x = x.astype(jnp.float32)
  scale = jnp.max(jnp.abs(x), axis=axes, keepdims=True) / 127
  steps = x / jnp.broadcast_to(jnp.where(scale > 0, scale, 1.0), x.shape)
  return Int8(jnp.round(steps).astype(jnp.int8), scale)


def dequantize(values, scale):
  """Returns the float32 array that was quantized, exact to half a scale."""
  return values.astype(jnp.float32) * jnp.broadcast_to(scale, values.shape)


def quantize_weights(params: dict, s: Spec) -> dict:
  """Quantizes the layers' matrices of a tree to int8, with "scales" by path; the tree has no adapters."""
  scales = {}

  def one(path, weight):
    path = ".".join(key.key for key in path)
    axes = _inside(path, s, weight.ndim)
    if not axes:
      return weight
    small = quantize(weight, axes)
    scales[path] = {"scale": small.scale}
    return small.values

  small = jax.tree.map_with_path(one, params)
  return small | {"scales": scales}


def axes(of_params: dict, s: Spec) -> dict:
  """Returns the logical axes of `quantize_weights`' tree: a scale is laid out as its matrix."""
  leaves = jax.tree.leaves_with_path(of_params, is_leaf=lambda leaf: isinstance(leaf, tuple))
  by_path = {".".join(key.key for key in path): leaf for path, leaf in leaves}
  scales = {path: {"scale": leaf} for path, leaf in by_path.items() if _inside(path, s, len(leaf))}
  return of_params | {"scales": scales}


def _inside(path: str, s: Spec, ndim: int) -> tuple[int, ...]:
  """Returns the axes that a layer's matrix sums over; () for a router and for what is no matrix."""
  row = names.row(s, path)
  if not path.startswith("layers.") or path.endswith("router") or len(row.theirs) < 2:
    return ()
  first = ndim - len(row.ours)
  return tuple(first + row.ours.index(letter) for letter in row.theirs[1])


def quantize_cache(cache: list) -> list:
  """Returns an int8 cache: keys and values [B, S, K, H] of every layer."""
  return [tuple(quantize(x, (-1,)) for x in pair) for pair in cache]


def write(kept, new, column):
  """Writes `new` [B, 1, K, H] to one column of keys or values, which are kept in full or in int8."""
  new = quantize(new, (-1,)) if isinstance(kept, Int8) else new
  update = lambda old, x: jax.lax.dynamic_update_slice_in_dim(old, x, column, axis=1)
  return jax.tree.map(update, kept, new)


def read(kept, dtype):
  """Returns keys or values as attention reads them."""
  return dequantize(*kept).astype(dtype) if isinstance(kept, Int8) else kept
