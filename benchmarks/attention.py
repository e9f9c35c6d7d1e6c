"""Share of a TPU's peak that attention reaches, by the compiler's schedule: `Chip.attention`.

    python -m benchmarks.attention

Splash as updates call it, of rows of 10,240 columns and heads of 128, is compiled for one chip, and the
final schedule read: how many bundles of instructions a block of scores takes, and a step of the grid that the
causal mask leaves empty.  A bundle is a cycle, a block takes as long as its products at the peak at least,
copies are hidden and nothing waits.  The FLOPs are those of the pairs that the mask leaves.
Writes benchmarks/results/attention.json and prints Markdown.
"""

import itertools
import tempfile
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from benchmarks import schedule
from benchmarks.setting import keep, setting, where
from grpojax.models import kernels
from grpojax.runtime import compiler_options
from grpojax.tools.podcheck import topology

SLICES = {"v4:2x2x1": 2, "v5e:2x2": 1, "v5p:2x2x1": 2, "v6e:2x2": 1, "tpu7x:2x2x1": 1}  # cores of a device
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
  kernel, local = kernels.splash(COLUMNS, HEADS, by_columns, window=0, scale=WIDTH**-0.5, cap=0.0)

  def backward(kernel, q, k, v, segment, ct):
    return jax.vjp(lambda *qkv: local(kernel, *qkv, segment, segment), q, k, v)[1](ct)

  wide = shape(1, COLUMNS, HEADS, WIDTH)
  described = jax.tree.map(lambda x: shape(*x.shape, dtype=x.dtype), kernel)
  args = described, wide, wide, wide, shape(1, COLUMNS, dtype=jnp.int32), wide
  make = lambda: jax.jit(backward, compiler_options=compiler_options.options(mesh)).lower(*args).compile()
  return {kind: read(text) for kind, text in schedule.kernels(make, dumps, r"splash_mha_([a-z]+)_")}


def shares(name: str, dumps: Path) -> dict[str, float]:
  """Returns the share of the peak, kernel by kernel and of all."""
  found, chip = schedules(name, dumps), topology.find(name).chip
  peak = chip.flops / chip.clock / SLICES[name]  # FLOPs a cycle
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
  with tempfile.TemporaryDirectory() as dumps:
    schedule.dump_to(dumps)
    found = {name: shares(name, Path(dumps)) for name in SLICES}
  now = setting("benchmarks.attention")
  keep("attention", now | dict(found=found))
  print("| | forward | backward, keys | backward, queries | all |\n|---|---|---|---|---|")
  for name, of in found.items():
    cells = (f"{of[kind]:.2f}" for kind in (*PRODUCTS, "all"))
    print(f"| {name.partition(':')[0]} | {' | '.join(cells)} |")
  print(f"\n{where(now)}")


if __name__ == "__main__":
  main()
