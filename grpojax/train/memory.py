"""What the settings take of a device's memory at the least, against what it has, before anything compiles.

Each number is a lower bound of one array, so that nothing is refused that would run.  What a whole program
takes is only known when it is compiled: `grpojax podcheck`.
"""

from collections.abc import Sequence

from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax.models import Model
from grpojax.rollout import sampler, turns
from grpojax.rollout.sampler import kv_budget
from grpojax.runtime import memory, sharding

_FLOAT = 4  # bytes


def check(config: ConfigDict, model: Model, mesh: Mesh, teachers: Sequence[Model] = ()) -> None:
  """Raises ValueError for keys that ask for more memory than a device has."""
  has = memory.available(mesh.local_devices)
  needed = least(config, model, mesh)
  for teacher in teachers:
    where = sharding.param_shardings(mesh, teacher.axes, teacher.shapes, teacher.rules)
    needed["teacher"] = needed.get("teacher", 0) + sharding.bytes_per_chip(teacher.shapes, where)
  for keys, needs in needed.items():
    if needs > has:
      raise ValueError(
        f"config.{keys} need at least {needs / 1e9:.3g} GB of a device, which has {has / 1e9:.3g} GB; "
        "lower the largest of them."
      )


def least(config: ConfigDict, model: Model, mesh: Mesh) -> dict[str, int]:
  """Returns keys -> bytes of a device that one array takes which they decide."""
  c, s, L = config.rollout, model.spec, config.data.prompt_budget
  own = sharding.sampler_mesh(config.mesh, mesh)
  shards, tensor = sharding.batch_shards(own), own.shape["tensor"]
  here, columns = c.prompts // shards, L + c.max_tokens - 1
  where = sharding.param_shardings(mesh, model.axes, model.shapes, model.rules)
  vocabulary = -(-s.vocab_size // mesh.shape["tensor"])
  found = {
    "model": sharding.bytes_per_chip(model.shapes, where),
    "rollout.prompts, .group_size, .max_tokens and config.data.prompt_budget":
      _FLOAT * (c.prompts // sharding.batch_shards(mesh)) * c.group_size * columns,
    "logprob_chunk": _FLOAT * min(config.logprob_chunk, c.max_tokens) * vocabulary,
  }  # fmt: skip
  for section, generation in ("rollout", sampler.build.rollout_spec), ("eval", sampler.build.eval_spec):
    generation = generation(config)
    if config.env.name:
      slots = turns.build.slots_of(config, s, own, generation) // shards
      keys = f"{section}.max_tokens, config.rollout.slots and config.data.prompt_budget"
      of_slot = L + turns.build.context_tokens(config, generation)
      found[keys] = kv_budget.kv_bytes(s, slots * of_slot, tensor)
      continue
    slots = sampler.build.slots_that_fit(config, s, own, generation) or c.prompts * generation.group_size
    decoded = slots // shards * kv_budget.ring(generation.max_tokens)
    keys = f"{section}.max_tokens, config.rollout.slots, .prompts and config.data.prompt_budget"
    kept = kv_budget.kept_as(generation.kv_cache, own) if c.slots else generation.kv_cache
    found[keys] = kv_budget.kv_bytes(s, here * L + decoded, tensor, kept)
  if c.slots and not config.env.name:
    read = -(-here * L // c.prefill_chunk) * c.prefill_chunk
    found["rollout.prefill_chunk and .prompts"] = kv_budget.kv_bytes(s, L + read, tensor)
    found["rollout.prefill_chunk and config.data.prompt_budget"] = (
      _FLOAT * c.prefill_chunk * (L + c.prefill_chunk)  # how far each column is from each
    )
  return found
