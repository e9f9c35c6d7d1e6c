"""A run that trains adapters only: what it starts from, and what it keeps of what stays frozen.

A checkpoint holds the adapters alone.  The frozen weights are read again from where they came from: a
model's own folder, whose bits must be those that the run began with, or a copy of the cold start in
the workdir, because the cache may be deleted.
"""

import json
from pathlib import Path

import jax
from ml_collections import ConfigDict
from orbax.checkpoint import v1 as ocp

from grpojax.models import Model, hf, lora, peft
from grpojax.runtime import checksums, processes, sharding, storage
from grpojax.train import setup


def begin(config: ConfigDict, workdir: Path, model: Model, mesh, params: dict) -> tuple[dict, dict]:
  """Returns (frozen, trained) of a new run that starts from `params`; ({}, params) without adapters."""
  if not model.lora:
    return {}, params
  if "path" not in config.model:
    ocp.save(storage.absolute(workdir) / "frozen", params, overwrite=True)
  else:
    found = checksums.of_leaves(params)  # all processes compute them
    processes.on_process_0(lambda: (workdir / "frozen.json").write_text(json.dumps(found)))
  return params, start(config, model, mesh)


def start(config: ConfigDict, model: Model, mesh) -> dict:
  """Returns the adapters of config.lora.path, or adapters that change nothing yet."""
  if config.lora.path:
    return peft.load(Path(config.lora.path).expanduser(), model, mesh)
  where = sharding.param_shardings(mesh, model.lora.axes, model.lora.shapes, model.rules)
  init = jax.jit(lambda key: lora.init(model.lora, model.spec, key), out_shardings=where)
  return init(jax.random.key(config.seed))


def frozen(config: ConfigDict, workdir: Path, model: Model, mesh) -> dict:
  """Returns the frozen weights of a run that is under way.  ValueError if they are not what it began with."""
  if not model.lora:
    return {}
  if "path" not in config.model:
    where = sharding.param_shardings(mesh, model.axes, model.shapes, model.rules)
    return ocp.load(storage.absolute(workdir) / "frozen", sharding.abstract(model.shapes, where))
  params = hf.load(setup.model_folder(config), model, mesh)
  if checksums.of_leaves(params) != json.loads((workdir / "frozen.json").read_text()):
    raise ValueError(
      f"config.model.path = '{config.model.path}' holds other weights than when the run in {workdir} began, "
      "and its adapters belong to those; bring them back."
    )
  return params
