"""The sizes of the mesh's open axes."""

import math
from collections.abc import Iterator

from ml_collections import ConfigDict

from grpojax.runtime import sharding
from grpojax.train import policy as policy_lib
from grpojax.train.auto.keys import open_keys
from grpojax.train.auto.machine import Machine

ALL = sharding.RULES["embed"]
MOST_EXPERT = 4  # shards of a mixture's experts, where nothing hides gathers of all of them (docs/pods.md)


def candidates(config: ConfigDict, machine: Machine, tokenizer) -> Iterator[dict]:
  """Yields values of the mesh's open keys.

  Prompts are cut as often as they divide, over `fsdp`; devices beyond that share rows, along `context`.
  Without SparseCores a mixture's experts are cut over neighbours, to which tokens travel.  What follows has
  fewer shards and more neighbours, which the sampler can cut its matrices over; parameters that are whole
  along `context`; and matrices cut in two.
  """
  first = _mesh(config, machine, tokenizer)
  rules = ["fsdp", ALL] if "mesh.rules.embed" in open_keys(config) else [config.mesh.rules.embed]
  for sizes in _variants(first, machine):
    # Along three axes the compiler held gradients twice: 72B on v5p:4x4x8 asked for 99 GiB, not 88.
    two = sizes.get("context", config.mesh.context) > 1 and sizes.get("tensor", config.mesh.tensor) <= 1
    for embed in rules if two else rules[-1:]:
      yield {f"mesh.{axis}": size for axis, size in sizes.items()} | {"mesh.rules.embed": embed}


def _variants(sizes: dict[str, int], machine: Machine) -> Iterator[dict[str, int]]:
  """Yields sizes of the open axes, and others with as many devices."""
  yield sizes
  fsdp = sizes.get("fsdp", 1)
  for share in (2, 4, 8):
    if machine.accelerated and "context" in sizes and fsdp % share == 0:
      yield sizes | dict(fsdp=fsdp // share, context=sizes["context"] * share)
  if machine.accelerated and "tensor" in sizes and fsdp % 2 == 0:
    yield sizes | dict(fsdp=fsdp // 2, tensor=2 * sizes["tensor"])


def _mesh(config: ConfigDict, machine: Machine, tokenizer) -> dict[str, int]:
  """Returns sizes of the mesh's open axes by the first two rules of `candidates`."""
  sizes = {axis: config.mesh[axis] for axis in sharding.AXES}
  free = [axis for axis, size in sizes.items() if size == 0]
  chosen = dict.fromkeys(free, 1)
  closed = math.prod(size for size in sizes.values() if size > 0)
  left, rest = divmod(len(machine.devices) - config.mesh.rollout_devices, closed)
  if -1 in sizes.values() or rest:
    return chosen
  prompts = config.rollout.prompts // config.updates_per_rollout
  prompts //= math.prod(max(1, sizes[axis]) for axis in sharding.BATCH_AXES)
  if "data" in free and config.mesh.slices > 1:
    chosen["data"] = config.mesh.slices
    left, prompts = left // config.mesh.slices, prompts // config.mesh.slices
  moe = policy_lib.build_model(config, tokenizer).spec.moe
  if "expert" in free and moe and machine.accelerated and not machine.chip.sparse_cores:
    chosen["expert"] = _divisor(math.gcd(left, moe.num_experts, prompts), MOST_EXPERT)
    left, prompts = left // chosen["expert"], prompts // chosen["expert"]
  batch = "data" if "data" in free and not machine.accelerated else "fsdp"
  if batch in free:
    chosen[batch] *= math.gcd(left, prompts)
    left //= math.gcd(left, prompts)
  shares = next((axis for axis in ("context", "tensor") if axis in free), None)
  return chosen | ({shares: left} if shares else {})


def _divisor(number: int, most: int) -> int:
  """Returns the largest divisor of a number, at most so large."""
  return max(n for n in range(1, most + 1) if number % n == 0)
