"""Closes every open key, of the mesh first, as all others follow from it."""

from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax.config import check as config_lib
from grpojax.config.overrides import changed
from grpojax.data import text
from grpojax.models import Model, kernels
from grpojax.runtime import sharding
from grpojax.train import footprint
from grpojax.train import policy as policy_lib
from grpojax.train.auto import mesh as mesh_lib
from grpojax.train.auto import rollout, update
from grpojax.train.auto.keys import open_keys
from grpojax.train.auto.machine import Machine, here

CPU_SLOTS, CPU_CHUNK = 256, 32  # a processor's memory is shared, and its caches are small


def choose_here(config: ConfigDict) -> ConfigDict:
  """Collective: returns `choose` for the devices that there are."""
  if not open_keys(config):
    return config
  return choose(config, here(), text.load_tokenizer(policy_lib.model_folder(config)))


def choose(config: ConfigDict, machine: Machine, tokenizer) -> ConfigDict:
  """Returns a config that `config.check` accepts with every open key closed.

  Raises ValueError where the devices cannot be divided so.
  """
  if not open_keys(config):
    return config
  found = {}
  for where in mesh_lib.candidates(config, machine, tokenizer):
    trial = changed(config, where)
    mesh = sharding.make_mesh(trial.mesh, machine.devices)
    model = build_model(trial, machine, tokenizer, mesh)
    seconds, values = (accelerated if machine.accelerated else _processor)(trial, machine, model, mesh)
    found.setdefault(seconds, changed(trial, values))
  config = found[min(found)]
  config_lib.check(config, len(machine.devices))
  return config


def build_model(config: ConfigDict, machine: Machine, tokenizer, mesh: Mesh) -> Model:
  """Returns the model as the devices that are meant would have it."""
  model = policy_lib.build_model(config, tokenizer, mesh)
  if machine.attention and not kernels.obstacle(machine.attention, model.spec):
    model = model._replace(attention=machine.attention)
  return model


def _processor(config: ConfigDict, machine: Machine, model: Model, mesh: Mesh) -> tuple[float, dict]:
  """Returns (0, values) for CPUs, whose caches decide: a row at a time."""
  values = {
    "mesh.sampler.tensor": 0,
    "mesh.sampler.expert": 1,
    "rollout.slots": min(CPU_SLOTS, config.rollout.prompts * config.rollout.group_size),
    "microbatches": update.pieces_of(config, model, mesh)[-1],
    "logprob_chunk": min(CPU_CHUNK, config.rollout.max_tokens),
    "remat": "full",
  }
  return 0.0, {key: value for key, value in values.items() if key in open_keys(config)}


def accelerated(config: ConfigDict, machine: Machine, model: Model, mesh: Mesh) -> tuple[float, dict]:
  """Returns (seconds of a step that choices cost, values) for GPUs and TPUs, whose memory decides."""
  closed = changed(config, _closed(config))  # what one phase does not read may be anything
  state = footprint.state(footprint.sizes(closed, model, mesh))
  lost, learns = update.choose(config, closed, machine, model, mesh, state)
  reading, samples = rollout.choose(config, changed(closed, learns), machine, model, mesh, state)
  return lost + reading, learns | samples


def _closed(config: ConfigDict) -> dict:
  """Returns the least of every open key that is no axis of the mesh."""
  least = rollout.LEAST | {"microbatches": 1, "logprob_chunk": update.CHUNK, "remat": "full"}
  return {key: least[key] for key in open_keys(config)}
