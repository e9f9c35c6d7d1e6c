"""Share of a TPU's peak that attention reaches, by the compiler's schedule: `Chip.attention`.

    python -m benchmarks.attention

Splash as updates call it, of rows of 10,240 columns and heads of 128, is compiled for one chip, and the
final schedule read: how many bundles of instructions a block of scores takes, and a step of the grid that the
causal mask leaves empty.  A bundle is a cycle, a block takes as long as its products at the peak at least,
copies are hidden and nothing waits.  The FLOPs are those of the pairs that the mask leaves.
Writes benchmarks/results/attention.json and prints Markdown.
"""

import itertools
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from benchmarks import schedule
from grpojax.models import kernels
from grpojax.runtime import compiler_options
from grpojax.tools.podcheck import topology

COLUMNS, HEADS, WIDTH = 10240, 2, 128
PRODUCTS = {"fwd": 2, "dkv": 4, "dq": 3}  # of a block: see podcheck/roofline/kernels.py


class Schedule(NamedTuple):
  """Bundles of one step of the grid."""

  step: int  # with a block of scores
  block: int  # of those, the block's own


def read(text: str) -> Schedule:
  """Reads a kernel's final schedule: one loop, over the grid, whose longest region is the block."""
  found = [(at, mark) for at, mark, _ in schedule.bundles(text)]
  first, last = next(at for at, mark in found if mark == "LB"), found[-1][0]
  cuts = [first, *(at for at, mark in found if mark and at > first), last]
  return Schedule(last - first, max(b - a for a, b in itertools.pairwise(cuts)))


def cycles(found: Schedule, queries: int, keys: int, least: float) -> float:
  """Returns cycles of a head's grid; a block takes at least `least` cycles."""
  steps = (COLUMNS // queries) * (COLUMNS // keys)
  full = sum(-(-(i + 1) * queries // keys) for i in range(COLUMNS // queries))
  return steps * (found.step - found.block) + full * max(found.block, least)


def schedules(name: str, dumps: Path) -> dict[str, Schedule]:
  """Returns the schedule of each kernel."""
  mesh = Mesh(np.array(topology.find(name).devices[:1]), ("context",))
  on_one = SingleDeviceSharding(mesh.devices[0])
  shape = lambda *s, dtype=jnp.bfloat16: jax.ShapeDtypeStruct(s, dtype, sharding=on_one)
  by_columns = NamedSharding(mesh, PartitionSpec(None, None))
  kernel = kernels.splash(COLUMNS, HEADS, by_columns, window=0, cap=0.0)

  def backward(kernel, q, k, v, segment, ct):
    read = lambda *qkv: kernels.read_segments(kernel, *qkv, segment, segment, scale=WIDTH**-0.5)
    return jax.vjp(read, q, k, v)[1](ct)

  wide = shape(1, COLUMNS, HEADS, WIDTH)
  described = jax.tree.map(lambda x: shape(*x.shape, dtype=x.dtype), kernel)
  args = described, wide, wide, wide, shape(1, COLUMNS, dtype=jnp.int32), wide
  lowered = jax.jit(backward, compiler_options=compiler_options.options(mesh)).lower(*args)
  _, texts = schedule.kernels(lowered, dumps, r"splash_mha_([a-z]+)_")
  return {kind: read(text) for kind, text in texts.items()}


def shares(name: str, dumps: Path) -> dict[str, float]:
  """Returns the share of the peak, kernel by kernel and of all."""
  found, chip = schedules(name, dumps), topology.find(name).chip
  peak = chip.flops / chip.clock / schedule.SLICES[name]  # FLOPs a cycle
  keys = kernels.block(COLUMNS)
  queries = min(keys, kernels.QUERIES)
  taken, needed = {}, {}
  for kind, steps in found.items():
    least = PRODUCTS[kind] * 2 * queries * keys * WIDTH / peak
    taken[kind] = cycles(steps, queries, keys, least)
    needed[kind] = PRODUCTS[kind] * COLUMNS**2 * WIDTH / peak
  each = {kind: needed[kind] / taken[kind] for kind in taken}
  return each | dict(all=sum(needed.values()) / sum(taken.values()))


def main():
  heads = dict(fwd="forward", dkv="backward, keys", dq="backward, queries", all="all")
  schedule.report("attention", shares, heads)


if __name__ == "__main__":
  main()
