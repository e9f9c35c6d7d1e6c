"""Which part of every parameter a chip holds, printed before anything is compiled or allocated."""

import jax
from ml_collections import ConfigDict

from grpojax.data import text
from grpojax.models import Model
from grpojax.rollout.sampler import weights
from grpojax.runtime import console, sharding
from grpojax.train import auto
from grpojax.train import policy as policy_lib
from grpojax.train import programs as programs_lib


def show(config: ConfigDict) -> None:
  """Prints the table of a config's model on its mesh: `--config.print_sharding=True`."""
  config = auto.choose_here(config)
  mesh = sharding.make_mesh(config.mesh)
  model = policy_lib.build_model(config, text.load_tokenizer(policy_lib.model_folder(config)), mesh)
  axes = " x ".join(f"{axis} {n}" for axis, n in mesh.shape.items())
  console.say(f"{mesh.size} {mesh.devices.flat[0].device_kind} device(s): {axes}")
  for line in table(model, mesh):
    console.say(line)
  shapes, where = programs_lib.state_layout(config, model, mesh)
  moments = sharding.bytes_per_chip(shapes.opt_state, where.opt_state)
  console.say(f"optimiser state: {moments:,} bytes per chip")
  own = weights.copy_of(config, model, mesh, config.rollout.weights)
  if own:
    axes = " x ".join(f"{axis} {n}" for axis, n in sharding.sampler_mesh(config.mesh, mesh).shape.items())
    console.say(f"the sampler's copy, on {axes}: {own.bytes_per_chip:,} bytes per chip")


def table(model: Model, mesh) -> list[str]:
  """Returns a line a parameter, layers stacked: path, shape, dtype, spec, bytes per chip; and the total."""
  shapes, axes = model.shapes, model.axes
  if model.lora:
    shapes, axes = shapes | model.lora.shapes, axes | model.lora.axes
  where = sharding.param_shardings(mesh, axes, shapes, model.rules)
  rows = [("parameter", "shape", "dtype", "cut over", "bytes per chip")]
  for (path, leaf), place in zip(jax.tree.leaves_with_path(shapes), jax.tree.leaves(where), strict=True):
    name = ".".join(key.key for key in path)
    cuts = ", ".join(_cut(mesh, cut) for cut in place.spec)
    size = sharding.bytes_per_chip(leaf, place)
    rows.append((name, str(leaf.shape), leaf.dtype.name, f"({cuts})", f"{size:,}"))
  rows.append(("total", "", "", "", f"{sharding.bytes_per_chip(shapes, where):,}"))
  *left, last = (max(map(len, column)) for column in zip(*rows, strict=True))
  aligned = lambda row: [cell.ljust(width) for cell, width in zip(row[:-1], left, strict=True)]
  return ["  ".join([*aligned(row), row[-1].rjust(last)]) for row in rows]


def _cut(mesh, axes) -> str:
  """Returns the axes that cut a dimension in more than one piece."""
  axes = [axes] if isinstance(axes, str) else axes or ()
  return " x ".join(axis for axis in axes if mesh.shape[axis] > 1) or "-"
