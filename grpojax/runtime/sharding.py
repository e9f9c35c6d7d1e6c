"""The mesh, and the one table of rules: logical axis -> mesh axes.

Model code names logical axes only (`Model.axes`); the table `config.mesh.rules`, by default RULES, decides
the layout.
"""

import math
from collections.abc import Mapping

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

AXES = ("data", "fsdp", "tensor", "expert", "context")  # of the mesh; the last are nearest neighbours
RULES = {
  "embed": "fsdp,context",
  "heads": "tensor",
  "kv_heads": "tensor",
  "mlp": "tensor",
  "vocab": "tensor",
  "expert": "expert",
  "layers": "",
}
BATCH_AXES = ("data", "fsdp", "expert")  # mesh axes that cut the prompt axis of every batch
Rules = Mapping[str, str]  # several mesh axes are joined by commas; "": whole


def mesh_sizes(config: ConfigDict, devices: int) -> dict[str, int]:
  """Returns the size of each axis, with one -1 filled in.  Raises ValueError for impossible sizes.

  An axis that is still to be chosen, 0, counts as 1.  Of so many devices the sampler's own are none of these.
  """
  devices -= rollouts_alone(config, devices)
  sizes = {axis: config[axis] or 1 for axis in AXES}
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
  if config.slices < 1 or sizes["data"] % config.slices:
    raise ValueError(
      f"config.mesh.data = {sizes['data']} is what slices are joined by, and config.mesh.slices = "
      f"{config.slices} must divide it."
    )
  return sizes


def make_mesh(config: ConfigDict, devices=None) -> Mesh:
  """Makes the learner's mesh of the first devices (of this machine, or of a topology) that its sizes need."""
  devices = list(jax.devices() if devices is None else devices)
  sizes, apart = mesh_sizes(config, len(devices)), set(rollout_devices(config, devices))
  used = [device for device in devices if device not in apart][: math.prod(sizes.values())]
  if apart:  # no cuboid, by which devices could be arranged
    return _reshaped(np.array(used), sizes)
  return _reshaped(arranged(sizes, config.slices, used), sizes)


def rollouts_alone(config: ConfigDict, devices: int) -> int:
  """Returns how many of so many devices sample and do nothing else.  Raises ValueError if none is left."""
  alone = config.get("rollout_devices", 0)
  if alone and alone >= devices:
    raise ValueError(
      f"config.mesh.rollout_devices = {alone} of {devices} device(s) leaves none that learns; lower it."
    )
  return alone


def rollout_devices(config: ConfigDict, devices: list) -> list:
  """Returns those that sample alone: of every process as many, its last.

  Raises ValueError where they cannot be as many.
  """
  alone, of_process = rollouts_alone(config, len(devices)), {}
  if not alone:
    return []
  for device in devices:
    of_process.setdefault(device.process_index, []).append(device)
  each, rest = divmod(alone, len(of_process))
  if rest or any(len(own) <= each for own in of_process.values()):
    raise ValueError(
      f"config.mesh.rollout_devices = {alone} must be as many of each of the {len(of_process)} processes, and"
      " leave each one that learns."
    )
  return [device for own in of_process.values() for device in own[-each:]]


def sampler_sizes(config: ConfigDict, devices: int) -> dict[str, int]:
  """Returns the axes' sizes of the sampler's own mesh, if `config.mesh.sampler` sets one."""
  tensor, expert = config.sampler.tensor, max(config.sampler.expert, 1)
  if tensor < 0 or devices % max(tensor * expert, 1):
    raise ValueError(
      f"config.mesh.sampler.tensor = {tensor} times .expert = {expert} must divide the {devices} devices of "
      "config.mesh; tensor = 0 samples where the learner's parameters lie."
    )
  tensor, expert = (tensor, expert) if tensor else (1, 1)
  data = devices // (tensor * expert)
  if data % config.slices:
    raise ValueError(
      f"config.mesh.sampler leaves {data} shards of prompts, which config.mesh.slices = {config.slices} "
      "must divide; lower its tensor or expert."
    )
  return dict.fromkeys(AXES, 1) | {"data": data, "tensor": tensor, "expert": expert}


def sampler_mesh(config: ConfigDict, mesh: Mesh) -> Mesh:
  """Returns the sampler's mesh: its own devices, or the learner's in other sizes, or the learner's itself."""
  own = rollout_devices(config, mesh.devices.flat[0].client.devices())
  if own:
    return _reshaped(np.array(own), sampler_sizes(config, len(own)))
  return in_sampler_sizes(config, mesh) if config.sampler.tensor > 0 else mesh


def processes_of(mesh: Mesh) -> np.ndarray:
  """Returns the process of every device, in the mesh's shape."""
  return np.vectorize(lambda device: device.process_index)(mesh.devices)


def own_part(mesh: Mesh) -> Mesh | None:
  """Returns the mesh of this process's devices alone, its part of the axis `data`.

  None where another axis of the mesh has devices of several processes.
  """
  process = processes_of(mesh).reshape(mesh.shape["data"], -1)
  if (process != process[:, :1]).any():
    return None
  own = process[:, 0] == jax.process_index()
  return Mesh(mesh.devices[own], mesh.axis_names, axis_types=mesh.axis_types)


def in_sampler_sizes(config: ConfigDict, mesh: Mesh) -> Mesh:
  """Returns the learner's devices in their order, in the sampler's sizes."""
  return _reshaped(mesh.devices, sampler_sizes(config, mesh.size))


def _reshaped(devices: np.ndarray, sizes: dict[str, int]) -> Mesh:
  return Mesh(devices.reshape(*sizes.values()), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def arranged(sizes: dict[str, int], slices: int, devices) -> np.ndarray:
  """Arranges the devices in these sizes; slices, joined by a slow network, follow each other in `data`.

  Raises ValueError if the devices are of another number of slices.
  """
  found = slices_of(devices)
  if found != slices:
    raise ValueError(
      f"config.mesh.slices = {slices}, and these {len(devices)} devices are of {found} slice(s); "
      "set it to that."
    )
  if slices == 1:
    return mesh_utils.create_device_mesh(tuple(sizes.values()), devices, allow_split_physical_axes=True)
  inside = sizes | {"data": sizes["data"] // slices}
  across = dict.fromkeys(sizes, 1) | {"data": slices}
  return mesh_utils.create_hybrid_device_mesh(
    tuple(inside.values()), tuple(across.values()), devices, allow_split_physical_axes=True
  )


def slices_of(devices) -> int:
  """Returns the number of slices, joined by a slow network, that these devices are of."""
  return len({getattr(device, "slice_index", 0) for device in devices})


def check_rules(rules: Rules) -> None:
  """Raises ValueError if no mesh could lay parameters out by this table."""
  if rules["embed"] == "auto":  # train/auto takes this, or a part of it
    rules = dict(rules, embed=RULES["embed"])
  for name, rule in rules.items():
    unknown = [axis for axis in mesh_axes(rule) if axis not in AXES]
    if unknown:
      raise ValueError(
        f"config.mesh.rules.{name} = {rule!r}: {unknown[0]!r} is no axis of the mesh, which has "
        f"{', '.join(AXES)}."
      )
    axes = mesh_axes(rule)
    if len(set(axes)) < len(axes):
      raise ValueError(f"config.mesh.rules.{name} = {rule!r} names an axis twice; name each once.")
  if rules["expert"] not in ("", "expert"):
    raise ValueError(f"config.mesh.rules.expert = {rules['expert']!r}; it is 'expert' or ''.")
  for name in ("heads", "kv_heads", "mlp"):
    if set(mesh_axes(rules[name])) - {"tensor"}:
      raise ValueError(
        f"config.mesh.rules.{name} = {rules[name]!r}; it is 'tensor' or '', because activations, which are "
        "cut over the other axes by rows and columns, have this axis too."
      )
  meet = [("embed", name) for name in ("heads", "kv_heads", "mlp", "vocab", "expert")]
  meet += [("layers", name) for name in rules if name != "layers"]
  for one, other in meet:
    shared = set(mesh_axes(rules[one])) & set(mesh_axes(rules[other]))
    if shared:
      raise ValueError(
        f"config.mesh.rules.{one} and .{other} both name '{shared.pop()}', and one array has both; "
        "a mesh axis cuts an array once."
      )


def mesh_axes(rule: str) -> tuple[str, ...]:
  """Splits "fsdp,context" into ("fsdp", "context")."""
  return tuple(axis.strip() for axis in rule.split(",") if axis.strip())


def replicated(mesh: Mesh) -> NamedSharding:
  return NamedSharding(mesh, PartitionSpec())


def batch_axes(mesh: Mesh) -> tuple[str, ...]:
  """Returns those of BATCH_AXES that this mesh has."""
  return tuple(axis for axis in BATCH_AXES if axis in mesh.shape)


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """Returns the sharding of prompts over BATCH_AXES; devices along `tensor` and `context` share rows."""
  return NamedSharding(mesh, PartitionSpec(batch_axes(mesh)))


def batch_shards(mesh: Mesh) -> int:
  """Returns the number of pieces that the prompt axis of every batch is cut in."""
  return math.prod(mesh.shape[axis] for axis in batch_axes(mesh))


def cut_of(mesh: Mesh, rows: int) -> PartitionSpec:
  """Returns the partition of so many of the learner's rows, and of their columns, over a mesh.

  Devices along `context` share the rows of a shard.  Each takes whole rows if their number divides, because
  then no keys travel; else each has some columns of all rows.
  """
  axes = batch_axes(mesh)
  if "context" not in mesh.shape:
    return PartitionSpec(axes, None)
  whole = rows % (batch_shards(mesh) * mesh.shape["context"]) == 0
  return PartitionSpec((*axes, "context"), None) if whole else PartitionSpec(axes, "context")


def column_shards(mesh: Mesh | None, rows: int) -> int:
  """Returns the number of pieces that the columns of so many rows of the learner are cut in."""
  return mesh.shape["context"] if mesh and cut_of(mesh, rows)[1] else 1


def whole_columns(mesh: Mesh | None, x):
  """Gathers x [B, S, ...] of the learner's rows over `context` on each device, cut otherwise as before."""
  if column_shards(mesh, x.shape[0]) == 1:
    return x
  free = [PartitionSpec.UNCONSTRAINED] * (x.ndim - 2)
  where = NamedSharding(mesh, PartitionSpec(batch_axes(mesh), None, *free))
  return jax.lax.with_sharding_constraint(x, where)


def kv_sharding(mesh: Mesh, heads: int, rules: Rules = RULES) -> NamedSharding:
  """Returns the sharding of caches [heads, rows, ...]: rows like every batch, heads like projections."""
  return NamedSharding(mesh, PartitionSpec(*partition(mesh, ["kv_heads"], (heads,), rules), batch_axes(mesh)))


def partition(mesh: Mesh, names, shape: tuple[int, ...], rules: Rules = RULES) -> PartitionSpec:
  """Maps the logical axes of one array (None: whole) to mesh axes, by the rules.

  A dimension is cut over as many of its mesh axes as divide it, from the first on: 2 kv heads over 4 tensor
  shards are replicated.  So is a dimension whose axis the mesh does not have.
  """

  def cut(name, size):
    axes = [axis for axis in mesh_axes(rules[name] if name else "") if axis in mesh.shape]
    while axes and size % math.prod(mesh.shape[axis] for axis in axes):
      axes.pop()
    return axes[0] if len(axes) == 1 else tuple(axes) or None

  return PartitionSpec(*(cut(name, size) for name, size in zip(names, shape, strict=True)))


def wide_axes(mesh: Mesh, cut) -> tuple[str, ...]:
  """Returns the mesh axes of one entry of a PartitionSpec that have several devices, so that they cut."""
  axes = () if cut is None else (cut,) if isinstance(cut, str) else cut
  return tuple(axis for axis in axes if mesh.shape[axis] > 1)


def param_shardings(mesh: Mesh, axes, shapes, rules: Rules = RULES):
  """Maps logical axes and shapes, nested alike, to NamedShardings."""
  one = lambda names, shape: NamedSharding(mesh, partition(mesh, names, shape.shape, rules))
  return jax.tree.map(one, axes, shapes, is_leaf=lambda leaf: isinstance(leaf, tuple))


def bytes_per_chip(shapes, shardings) -> int:
  """Returns the bytes of a tree's arrays on the fullest device; `shardings` are a prefix of the tree."""
  layouts = jax.tree.leaves(jax.tree.broadcast(shardings, shapes))
  one = lambda x, where: math.prod(where.shard_shape(x.shape)) * x.dtype.itemsize
  leaves = zip(jax.tree.leaves(shapes), layouts, strict=True)
  return sum(one(x, where) for x, where in leaves if hasattr(x, "shape"))  # else a number of the objective


def abstract(shapes, shardings):
  """Returns shapes and dtypes with shardings, which Orbax restores into."""
  struct = lambda s, where: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=where)
  return jax.tree.map(struct, shapes, shardings)


def to_device(mesh: Mesh, tree):
  """Puts this process's rows of a batch into global arrays, cut over the batch axes."""
  put = lambda x: jax.make_array_from_process_local_data(batch_sharding(mesh), np.asarray(x))
  return jax.tree.map(put, tree)


def everywhere(mesh: Mesh, tree):
  """Puts host values and keys, equal on all processes, into global arrays, whole on every device."""
  where = replicated(mesh)

  def put(x):
    if jax.process_count() == 1:
      return jax.device_put(x, where)
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
      return jax.random.wrap_key_data(put(jax.random.key_data(x)), impl=jax.random.key_impl(x))
    x = np.asarray(x)
    x = x.astype(jax.dtypes.canonicalize_dtype(x.dtype))
    return jax.make_array_from_callback(x.shape, where, lambda index: x[index])

  return jax.tree.map(put, tree)


def to_host(tree):
  """Fetches this process's rows of global arrays cut by rows, as numpy."""

  def fetch(x):
    if x.is_fully_addressable:
      return np.asarray(x)
    rows = {s.index[0].start or 0: s.data for s in x.addressable_shards}
    return np.concatenate([np.asarray(rows[start]) for start in sorted(rows)])

  return jax.tree.map(fetch, tree)
