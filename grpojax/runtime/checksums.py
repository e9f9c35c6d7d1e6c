"""32-bit checksums of arrays: equal bits give equal checksums, however the array is cut over devices.

A sum over elements, modulo 2^32, of a one-to-one mix of each element's bits with its position: any change of
a single element changes it, so does an exchange of two, and no order of summation matters.
"""

import jax
import jax.numpy as jnp
import numpy as np

from grpojax.runtime.compile import SENDING


def of_leaves(tree) -> dict[str, int]:
  """Returns path -> checksum of each array, computed where the arrays are."""
  with SENDING:
    checksums = _all(jax.tree_util.tree_leaves(tree))
  checksums = jax.device_get(checksums)
  return dict(zip(paths(tree), map(int, checksums), strict=True))


def paths(tree) -> list[str]:
  """Returns the names of the leaves, as "0/params/embedding"."""
  leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
  return [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]


@jax.jit
def _all(leaves):
  return [_one(x) for x in leaves]


def _one(x):
  """Returns the checksum of one array, [] uint32."""
  kind = jnp.uint8 if x.dtype == bool else np.dtype(f"uint{8 * min(x.dtype.itemsize, 4)}")
  bits = x.astype(kind) if x.dtype == bool else jax.lax.bitcast_convert_type(x, kind)
  bits, position = bits.astype(jnp.uint32), jnp.zeros(bits.shape, jnp.uint32)
  for axis, size in enumerate(bits.shape):
    position = position * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis)
  mixed = bits ^ (position * jnp.uint32(0x9E3779B1))
  for factor in (0x85EBCA6B, 0xC2B2AE35):  # murmur3's finaliser, one-to-one
    mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(factor)
  return jnp.sum(mixed ^ (mixed >> 16), dtype=jnp.uint32)
