"""The parameters that the sampler reads: the learner's own, or a copy in its own layout or precision.

A learner cuts every matrix over all devices and gathers it where it is used, once for many tokens; a
decoded token would gather all of them for itself.  So the sampler may have its own mesh of the same devices,
`config.mesh.sampler`, where matrices are cut over `tensor` (and experts) alone.  And where the compute dtype
is narrower than the parameters', every decoded token would read and round all of them.  One program makes
the copy from the learner's parameters wherever sampling starts: adapters merged, matrices rounded as every
use of them rounds them, every array sent to its place.

With `config.mesh.rollout_devices` the sampler has devices of its own.  Then the program lays the copy over
the learner's devices as the sampler needs it, and each of the sampler's devices takes its part from one of
the same process.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from ml_collections import ConfigDict

from grpojax import models
from grpojax.models import int8, lora
from grpojax.runtime import sharding
from grpojax.runtime.compile import aot_jit


class Weights(NamedTuple):
  """The sampler's model and mesh, and how its parameters come from the learner's."""

  model: models.Model
  mesh: Mesh
  shardings: dict  # of the sampler's parameters
  sync: Callable | None  # program, the learner's parameters -> the sampler's; None: they are the same
  send: Callable | None = None  # what `sync` made -> where the sampler wants it; None: it is there


class Copy(NamedTuple):
  """Parameters of the sampler's own, as they lie on its devices."""

  rounded: Callable  # (params, Spec) -> the parameters in the sampler's precision
  axes: dict
  shapes: dict
  shardings: dict

  @property
  def bytes_per_chip(self) -> int:
    return sharding.bytes_per_chip(self.shapes, self.shardings)


def copy_of(config: ConfigDict, model: models.Model, mesh: Mesh, precision: str) -> Copy | None:
  """Returns the sampler's copy of a learner's parameters on `mesh`; None: it reads the learner's own.

  Precision "int8" rounds matrices to eight bits.
  """
  on, spec = sharding.sampler_mesh(config.mesh, mesh), model.spec
  rounds = jnp.dtype(spec.dtype).itemsize < jnp.dtype(spec.param_dtype).itemsize
  if on == mesh and precision == "full" and not rounds:
    return None
  if precision == "int8":
    rounded, axes = int8.quantize_weights, int8.axes(model.axes, spec)
  else:
    rounded, axes = in_compute_dtype, model.axes
  shapes = jax.eval_shape(lambda params: rounded(params, spec), model.shapes)
  return Copy(rounded, axes, shapes, sharding.param_shardings(on, axes, shapes, model.rules))


def build_sync(config: ConfigDict, name: str, model: models.Model, mesh: Mesh, precision: str) -> Weights:
  """Returns the sampler's side of a learner on `mesh`; its parameters are `copy_of` the learner's."""
  learners = policy_shardings(model, mesh)
  copy = copy_of(config, model, mesh, precision)
  if not copy:
    return Weights(model, mesh, learners, None)
  on, spec = sharding.sampler_mesh(config.mesh, mesh), model.spec

  def copied(params):
    if model.lora:
      params = lora.merge_all(params, spec, model.lora.scale)
    return copy.rounded(params, spec)

  samples, send, made = models.from_spec(spec, on, model.rules), None, copy.shardings
  if set(on.devices.flat) != set(mesh.devices.flat):
    beside = sharding.in_sampler_sizes(config.mesh, mesh)
    made = sharding.param_shardings(beside, copy.axes, copy.shapes, model.rules)
    send = lambda params: jax.tree.map(_on_own_devices, params, copy.shardings)
  sync = aot_jit(f"{name} weights", copied, in_shardings=(learners,), out_shardings=made)
  return Weights(samples, on, copy.shardings, sync, send)


def on_own_process(config: ConfigDict, weights: Weights) -> Weights:
  """Returns the sampler of this process's devices alone, which have a copy of all parameters among them.

  Each process then runs its programs when it wants, and as many of them.  Raises ValueError where the
  parameters of the sampler are cut over several processes.
  """
  cuts = [sharding.wide_axes(weights.mesh, cut) for x in jax.tree.leaves(weights.shardings) for cut in x.spec]
  mesh = sharding.own_part(weights.mesh)
  if mesh is None or any("data" in axes for axes in cuts):
    raise ValueError(
      f"config.env.name = '{config.env.name}' plays on each process's own devices, and matrices are cut over"
      f" several of the {jax.process_count()} processes; set config.mesh.sampler.tensor * .expert to a"
      f" divisor of a process's {jax.local_device_count()} device(s), 1 for whole matrices on each."
    )
  where = jax.tree.map(lambda own: NamedSharding(mesh, own.spec), weights.shardings)
  model = models.from_spec(weights.model.spec, mesh, weights.model.rules)
  first = weights.send or (lambda params: params)
  send = lambda params: jax.tree.map(_part_of_process, first(params), where)
  return Weights(model._replace(lora=weights.model.lora), mesh, where, weights.sync, send)


def _part_of_process(x: jax.Array, where: NamedSharding) -> jax.Array:
  """Returns an array of this process's devices, of those of its parts that they hold; nothing is copied."""
  return jax.make_array_from_single_device_arrays(x.shape, where, [s.data for s in x.addressable_shards])


def _on_own_devices(x: jax.Array, where: NamedSharding) -> jax.Array:
  """Sends an array to other devices, each part from a device of the same process; waits for nothing."""
  part = lambda index: tuple(cut.indices(size)[:2] for cut, size in zip(index, x.shape, strict=True))
  held = {part(shard.index): shard.data for shard in x.addressable_shards}
  wanted = where.addressable_devices_indices_map(x.shape)
  sent = [jax.device_put(held[part(index)], device) for device, index in wanted.items()]
  return jax.make_array_from_single_device_arrays(x.shape, where, sent)


def policy_shardings(model: models.Model, mesh: Mesh) -> dict:
  """Returns the shardings of the learner's parameters, adapters among them."""
  of = lambda part: sharding.param_shardings(mesh, part.axes, part.shapes, model.rules)
  return of(model) | of(model.trained)


def in_compute_dtype(params: dict, s: models.Spec) -> dict:
  """Returns matrices and biases as every use rounds them; norms, whose products are float32, stay."""
  head = "embedding" if s.tie_word_embeddings else "head"

  def one(path, x):
    stacked, dtype = path[0].key == "layers", s.dtype
    if path[0].key == head and s.head_dtype:
      dtype = s.head_dtype
    return x.astype(dtype) if x.ndim - stacked > 1 else x

  return jax.tree.map_with_path(one, params)
