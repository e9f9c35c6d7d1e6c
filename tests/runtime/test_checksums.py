"""A digest tells any two arrays apart that a fault could make of each other, on any number of devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from grpojax.runtime import checksums


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "int8", "bool"])
def test_every_single_bit_and_every_exchange_counts(dtype):
  x = np.random.default_rng(0).permutation(24).reshape(4, 6)
  x = np.asarray(jnp.asarray(x % 2 if dtype == "bool" else x, dtype))
  bits = x.view(f"uint{8 * x.dtype.itemsize}")
  changed = [x]
  for bit in range(1 if dtype == "bool" else 8 * x.dtype.itemsize):
    for at in (0, 0), (2, 3), (3, 5):
      other = bits.copy()
      other[at] ^= np.array(1 << bit).astype(other.dtype)
      changed.append(other.view(x.dtype))
  changed += [x[::-1].copy(), np.roll(x, 1), np.zeros_like(x)]
  found = checksums.of_leaves(changed)
  assert len(set(found.values())) == len(changed)


def test_it_is_the_same_however_the_array_lies():
  mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
  x = jax.random.normal(jax.random.key(0), (8, 16, 3))
  cuts = [(), ("a",), (None, "b"), ("b", "a"), (("a", "b"),)]
  placed = [jax.device_put(x, NamedSharding(mesh, PartitionSpec(*cut))) for cut in cuts]
  assert len(set(checksums.of_leaves([x, *placed]).values())) == 1


def test_leaves_have_the_names_of_their_places():
  tree = ({"params": {"w": jnp.ones(2), "none": None}}, [jnp.int32(3)])
  assert list(checksums.of_leaves(tree)) == ["0/params/w", "1/0"]
