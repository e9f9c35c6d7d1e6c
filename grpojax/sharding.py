"""The mesh, and the one table of rules: logical axis -> mesh axis.

Model code names logical axes only (`Model.axes`); changing how a model is laid out is changing RULES.
"""

import math

import jax
import numpy as np
from jax.experimental import mesh_utils, multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

RULES = {
  "embed": "fsdp",
  "heads": "tensor",
  "kv_heads": "tensor",
  "mlp": "tensor",
  "vocab": "tensor",
  "expert": "expert",
  "layers": None,
}
BATCH_AXES = ("data", "fsdp", "expert")  # what the prompt axis of every batch is cut over


def mesh_sizes(config: ConfigDict, devices: int) -> dict[str, int]:
  """Size of each axis, with one -1 filled in.  ValueError if they cannot be had."""
  sizes = {axis: config[axis] for axis in ("data", "fsdp", "tensor", "expert")}
  free = [axis for axis, size in sizes.items() if size == -1]
  if len(free) > 1 or any(size < 1 and size != -1 for size in sizes.values()):
    raise ValueError(f"config.mesh = {sizes}: sizes are positive, and at most one may be -1.")
  fixed = math.prod(size for size in sizes.values() if size != -1)
  if fixed > devices or (free and devices % fixed):
    raise ValueError(
      f"config.mesh = {sizes} does not fit the {devices} device(s) here; "
      "lower the sizes to a product that does (one may be -1, for the rest)."
    )
  if free:
    sizes[free[0]] = devices // fixed
  return sizes


def make_mesh(config: ConfigDict) -> Mesh:
  """The mesh of the first devices, as many as its sizes ask for."""
  sizes = mesh_sizes(config, jax.device_count())
  used = jax.devices()[: math.prod(sizes.values())]
  devices = mesh_utils.create_device_mesh(tuple(sizes.values()), used, allow_split_physical_axes=True)
  return Mesh(devices, tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))


def replicated(mesh: Mesh) -> NamedSharding:
  return NamedSharding(mesh, PartitionSpec())


def batch_axes(mesh: Mesh) -> tuple[str, ...]:
  """Those of BATCH_AXES that this mesh has."""
  return tuple(axis for axis in BATCH_AXES if axis in mesh.shape)


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """First axis (prompts) over all axes of the mesh but `tensor`."""
  return NamedSharding(mesh, PartitionSpec(batch_axes(mesh)))


def batch_shards(mesh: Mesh) -> int:
  """Pieces that the prompt axis of every batch is cut in."""
  return math.prod(mesh.shape[axis] for axis in batch_axes(mesh))


def kv_sharding(mesh: Mesh, heads: int) -> NamedSharding:
  """Of caches [rows, heads, ...]: rows like every batch, heads like the projections that make them."""
  return NamedSharding(mesh, PartitionSpec(batch_axes(mesh), *partition(mesh, ["kv_heads"], (heads,))))


def partition(mesh: Mesh, names, shape: tuple[int, ...]) -> PartitionSpec:
  """Logical axes of one array (None: whole) -> mesh axes, by RULES.

  A dimension that its mesh axis does not divide (2 kv heads over 4 tensor shards), or whose axis the
  mesh does not have, is replicated.
  """
  mesh_axes = [RULES[name] if name else None for name in names]
  divides = [n % mesh.shape.get(a, n + 1) == 0 for a, n in zip(mesh_axes, shape, strict=True)]
  return PartitionSpec(*(a if d else None for a, d in zip(mesh_axes, divides, strict=True)))


def param_shardings(mesh: Mesh, axes, shapes):
  """Logical axes and shapes, nested alike -> NamedShardings."""
  one = lambda names, shape: NamedSharding(mesh, partition(mesh, names, shape.shape))  # noqa: E731
  return jax.tree.map(one, axes, shapes, is_leaf=lambda leaf: isinstance(leaf, tuple))


def abstract(shapes, shardings):
  """What Orbax restores into: shapes and dtypes with the place of each."""
  struct = lambda s, where: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=where)  # noqa: E731
  return jax.tree.map(struct, shapes, shardings)


def to_device(mesh: Mesh, tree):
  """This process's rows of a batch -> global arrays, cut over the batch axes."""
  put = lambda x: jax.make_array_from_process_local_data(batch_sharding(mesh), np.asarray(x))  # noqa: E731
  return jax.tree.map(put, tree)


def to_host(tree):
  """Global arrays cut by rows -> this process's rows, as numpy."""

  def fetch(x):
    if x.is_fully_addressable:
      return np.asarray(x)
    rows = {s.index[0].start or 0: s.data for s in x.addressable_shards}
    return np.concatenate([np.asarray(rows[start]) for start in sorted(rows)])

  return jax.tree.map(fetch, tree)


def gather(tree):
  """Host arrays of every process, joined by their first axis, the same on all."""
  if jax.process_count() == 1:
    return tree
  return jax.tree.map(lambda x: multihost_utils.process_allgather(x, tiled=True), tree)
