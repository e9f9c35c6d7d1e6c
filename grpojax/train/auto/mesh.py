"""The sizes of the mesh's open axes."""

import math
from collections.abc import Iterator

from ml_collections import ConfigDict

from grpojax.runtime import sharding
from grpojax.train import policy as policy_lib
from grpojax.train.auto.machine import Machine

MOST_EXPERT = 8  # shards of a mixture's experts: tokens travel to as many neighbours


def candidates(config: ConfigDict, machine: Machine, tokenizer) -> Iterator[dict[str, int]]:
  """Yields sizes of the mesh's open axes, the likeliest first.

  Prompts are cut as often as they divide, over `fsdp`; devices beyond that share rows, along `context`, and
  have their parts of the parameters all the same.  A mixture's experts are cut over neighbours.  Where
  several processes sample, those of fewer shards follow: neighbours along `context` are of one process,
  so that the sampler can cut its matrices over them.
  """
  first = _mesh(config, machine, tokenizer)
  yield first
  fsdp, context = first.get("fsdp", 1), first.get("context", 0)
  processes = {device.process_index for device in machine.devices}
  for share in (2, 4, 8):
    if machine.accelerated and len(processes) > 1 and context and fsdp % share == 0:
      yield first | dict(fsdp=fsdp // share, context=context * share)


def _mesh(config: ConfigDict, machine: Machine, tokenizer) -> dict[str, int]:
  """Returns sizes of the mesh's open axes by the first rules of `candidates`."""
  sizes = {axis: config.mesh[axis] for axis in sharding.AXES}
  free = [axis for axis, size in sizes.items() if size == 0]
  chosen = dict.fromkeys(free, 1)
  closed = math.prod(size for size in sizes.values() if size > 0)
  left = len(machine.devices) // closed
  if -1 in sizes.values() or len(machine.devices) % closed:
    return chosen
  prompts = config.rollout.prompts // config.updates_per_rollout
  prompts //= math.prod(max(1, sizes[axis]) for axis in sharding.BATCH_AXES)
  if "data" in free and config.mesh.slices > 1:
    chosen["data"] = config.mesh.slices
    left, prompts = left // config.mesh.slices, prompts // config.mesh.slices
  moe = policy_lib.build_model(config, tokenizer).spec.moe
  if "expert" in free and moe and machine.accelerated:
    chosen["expert"] = _divisor(math.gcd(left, moe.num_experts, prompts), MOST_EXPERT)
    left, prompts = left // chosen["expert"], prompts // chosen["expert"]
  batch = "data" if "data" in free and not machine.accelerated else "fsdp"
  if batch in free:
    chosen[batch] *= math.gcd(left, prompts)
    left //= math.gcd(left, prompts)
  rest = next((axis for axis in ("context", "tensor") if axis in free), None)
  return chosen | ({rest: left} if rest else {})


def _divisor(number: int, most: int) -> int:
  """Returns the largest divisor of a number, at most so large."""
  return max(n for n in range(1, most + 1) if number % n == 0)
