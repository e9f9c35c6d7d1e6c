"""A run that trains adapters only: what it starts from, and what it keeps of what stays frozen.

A checkpoint holds the adapters alone.  The frozen weights are read again from where they came from: a
model's own folder, or a copy of the cold start in the workdir, because the cache may be deleted.  Each
checkpoint has their checksums.
"""

from pathlib import Path

import jax
from ml_collections import ConfigDict
from orbax.checkpoint import v1 as ocp

from grpojax.models import Model, hf, lora, peft
from grpojax.runtime import sharding, signals, storage
from grpojax.train import policy as policy_lib


def begin(config: ConfigDict, workdir: Path, model: Model, mesh, params: dict) -> tuple[dict, dict]:
  """Returns (frozen, trained) of a new run that starts from `params`; ({}, params) without adapters."""
  if not model.lora:
    return {}, params
  if "path" not in config.model:
    ocp.save(storage.absolute(workdir) / "frozen", params, overwrite=True)
  return params, start(config, model, mesh)


def start(config: ConfigDict, model: Model, mesh) -> dict:
  """Returns the adapters of config.lora.path, or adapters that change nothing yet."""
  if config.lora.path:
    return peft.load(Path(config.lora.path).expanduser(), model, mesh)
  where = sharding.param_shardings(mesh, model.lora.axes, model.lora.shapes, model.rules)
  init = jax.jit(lambda key: lora.init(model.lora, model.spec, key), out_shardings=where)
  return init(jax.random.key(config.seed))


def frozen(config: ConfigDict, workdir: Path, model: Model, mesh) -> dict:
  """Returns the frozen weights of a run that is under way.  Raises ValueError where they cannot be read."""
  if not model.lora:
    return {}
  if "path" in config.model:
    return hf.load(policy_lib.model_folder(config), model, mesh)
  folder = storage.absolute(workdir) / "frozen"
  where = sharding.param_shardings(mesh, model.axes, model.shapes, model.rules)
  try:
    with signals.heard():
      return ocp.load(folder, sharding.abstract(model.shapes, where))
  except (jax.errors.JaxRuntimeError, MemoryError):  # no room here says nothing of the files
    raise
  except Exception as error:  # whatever Orbax and its storage make of a damaged file
    raise ValueError(
      f"{folder}, the weights under the run's adapters, cannot be read ({error!r:.300}); bring it back."
    ) from error
