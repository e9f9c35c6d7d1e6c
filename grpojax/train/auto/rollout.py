"""The sampler's mesh, and the completions that decode at a time."""

import bisect
import math

from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax.config.overrides import changed
from grpojax.models import Model
from grpojax.runtime import data_shards, sharding
from grpojax.train import footprint
from grpojax.train.auto.keys import NONE_FITS, open_keys
from grpojax.train.auto.machine import Machine
from grpojax.train.footprint import Phase

SUM = 10e-6  # seconds that devices along `tensor` take to add up a token, besides what they read
LEAST = {"mesh.sampler.tensor": 0, "mesh.sampler.expert": 1, "rollout.slots": 1}


def choose(
  config: ConfigDict, closed: ConfigDict, machine: Machine, model: Model, mesh: Mesh, state: dict
) -> tuple[float, dict]:
  """Returns (seconds that a rollout reads memory, mesh.sampler and rollout.slots).

  The fewest seconds of what fits beside footprint.state.  If nothing does, LEAST.
  """
  found = {NONE_FITS: {key: LEAST[key] for key in open_keys(config) if key in LEAST}}
  for where in _meshes(config, machine, model):
    trial = changed(closed, where)
    if not _legal(trial, mesh):
      continue
    for slots, phase in _that_fit(trial, machine, model, mesh, state, _slots(config, trial, mesh)):
      trial.rollout.slots = slots
      found.setdefault(_seconds(trial, machine, model, phase), where | {"rollout.slots": slots})
  best = min(found)
  return best, found[best]


def _that_fit(
  config: ConfigDict, machine: Machine, model: Model, mesh: Mesh, state: dict, slots: list[int]
) -> list[tuple[int, Phase]]:
  """Returns the first of the slots that fit, with its memory, in a list; none that fits: []."""
  of = lambda n: footprint.decoding(
    footprint.sizes(changed(config, {"rollout.slots": n}), model, mesh), state
  )
  first = bisect.bisect_left(slots, True, key=lambda n: of(n).most <= machine.memory)
  return [(n, of(n)) for n in slots[first : first + 1]]


def _meshes(config: ConfigDict, machine: Machine, model: Model) -> list[dict]:
  """Returns the sampler's meshes to choose from; one that the config has closed is the only one."""
  c, moe, is_open = config.mesh.sampler, model.spec.moe, open_keys(config)
  tensors, experts = [c.tensor], [max(1, c.expert)]
  if "mesh.sampler.tensor" in is_open:
    number = config.mesh.rollout_devices or len(machine.devices)
    tensors = [n for n in (1, 2, 4, 8, 16) if number % n == 0]
  if "mesh.sampler.expert" in is_open and moe and tensors != [0]:
    experts = [n for n in (1, 2, 4, 8) if moe.num_experts % n == 0]
  return [{"mesh.sampler.tensor": t, "mesh.sampler.expert": e} for t in tensors for e in experts]


def _legal(config: ConfigDict, mesh: Mesh) -> bool:
  """Returns True if a run would accept the sampler's mesh."""
  try:
    samples = sharding.sampler_mesh(config.mesh, mesh)
    data_shards.check_sampler(mesh, samples)
  except ValueError:
    return False
  if config.env.name and sharding.own_part(samples) is None:  # each process plays its games alone
    return False
  return config.rollout.prompts % sharding.batch_shards(samples) == 0


def _slots(config: ConfigDict, trial: ConfigDict, mesh: Mesh) -> list[int]:
  """Returns numbers of slots to choose from, the most first: all completions, a half, a third ..."""
  c = config.rollout
  if "rollout.slots" not in open_keys(config):
    return [c.slots]
  shards = sharding.batch_shards(sharding.sampler_mesh(trial.mesh, mesh))
  here = c.prompts // shards * c.group_size
  return [own * shards for own in sorted({math.ceil(here / n) for n in range(1, here + 1)}, reverse=True)]


def _seconds(config: ConfigDict, machine: Machine, model: Model, phase: Phase) -> float:
  """Returns the seconds in which a device reads parameters and caches for the tokens of a rollout."""
  c, tensor = config.rollout, config.mesh.sampler.tensor
  waves = math.ceil(c.prompts * c.group_size / (c.slots or c.prompts * c.group_size))
  weights = phase.parts["the sampler's weights"] or phase.parts["parameters"]
  sums = 2 * model.spec.num_hidden_layers * SUM * (tensor > 1)
  return waves * c.max_tokens * ((weights + phase.parts["keys and values"]) / machine.chip.hbm + sums)
