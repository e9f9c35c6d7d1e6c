"""Share of a TPU's peak that a mixture's products reach, by the compiler's schedule: `Chip.mixture`.

    python -m benchmarks.mixture

`jax.lax.ragged_dot` of Qwen3-30B-A3B's widths, and its gradients, are compiled for one chip with 16 experts
of 9,216 rows each, and the final schedules read.  A step of the grid multiplies a tile of rows with an
expert's matrix, or on v4 with a part of it; in the gradient of the matrices some regions run once an expert
alone.  A bundle is a cycle, a step takes as long as its product at the peak at least, copies are hidden and
nothing waits.
Writes benchmarks/results/mixture.json and prints Markdown.
"""

import math
import re
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, SingleDeviceSharding

from benchmarks import schedule
from grpojax.runtime import compiler_options
from grpojax.tools.podcheck import topology

ROWS, WIDTH, HIDDEN, EXPERTS = 9216, 2048, 768, 16  # rows of an expert; hidden is an expert's own
CALL = re.compile(r'%(ragged-dot-none[.\d]*) = \w+\[([\d,]+)\].*ragged_dot_tiling="([\d,]+)"')
BRANCH = re.compile(r"sbr\.rel \([^)]*\) target = \$region(\d+)")


class Schedule(NamedTuple):
  """Bundles of one step of the grid."""

  tile: int  # of every step
  expert: int  # of an expert's first or last step alone


def read(text: str) -> Schedule:
  """Reads a kernel's final schedule: one loop over the grid, whose body may be left out, and parts of it."""
  found = schedule.bundles(text)
  first = next(at for at, mark, _ in found if mark == "LB")
  starts = {n: at for at, _, line in found for n in re.findall(r"Start(?:/End empty)? region (\d+)", line)}
  jumps = [(at, starts.get(m[1], 0)) for at, _, line in found if at > first and (m := BRANCH.search(line))]
  last = next(at for at, to in jumps if to <= first)
  body, *inner = sorted(((at, to) for at, to in jumps if first < at < to < last), key=lambda x: x[0] - x[1])
  once = sum(to - at for at, to in inner if body[0] < at and to <= body[1])
  return Schedule(last - first - once, once)


def share(found: Schedule, tile: tuple[int, int, int], matrix: tuple[int, int], peak: float) -> float:
  """Returns the share of the peak, in FLOPs a cycle, that an expert's rows times its `matrix` reach."""
  parts = math.prod(-(-whole // part) for whole, part in zip(matrix, tile[1:], strict=True))
  steps, least = ROWS / tile[0] * parts, 2 * math.prod(tile) / peak
  return 2 * ROWS * math.prod(matrix) / peak / (steps * max(found.tile, least) + parts * found.expert)


def shares(name: str, dumps: Path) -> dict[str, float]:
  """Returns the share of the peak, kernel by kernel and of all, which have as many FLOPs each."""
  on = topology.find(name)
  chip, mesh = on.chip, Mesh(np.array(on.devices[:1]), ("expert",))
  shape = lambda *s, dtype=jnp.bfloat16: jax.ShapeDtypeStruct(
    s, dtype, sharding=SingleDeviceSharding(mesh.devices[0])
  )

  def products(x, matrices, sizes, d_y):
    y, backward = jax.vjp(lambda x, m: jax.lax.ragged_dot(x, m, sizes), x, matrices)
    return y, backward(d_y)

  rows = EXPERTS * ROWS
  x, d_y, sizes = shape(rows, WIDTH), shape(rows, HIDDEN), shape(EXPERTS, dtype=jnp.int32)
  jitted = jax.jit(products, compiler_options=compiler_options.options(mesh))
  lowered = jitted.lower(x, shape(EXPERTS, WIDTH, HIDDEN), sizes, d_y)
  program, texts = schedule.kernels(lowered, dumps, r"(ragged-dot-none[.\d]*)-\d+-final")
  peak = chip.flops / chip.clock / schedule.SLICES[name]  # FLOPs a cycle
  kinds = {f"{rows},{HIDDEN}": "narrower", f"{rows},{WIDTH}": "wider"}
  kinds[f"{EXPERTS},{WIDTH},{HIDDEN}"] = "matrices"
  each = {}
  for kernel, result, tile in CALL.findall(program):
    kind, tile = kinds[result], tuple(map(int, tile.split(",")))
    matrix = (HIDDEN, WIDTH) if kind == "wider" else (WIDTH, HIDDEN)
    each[kind] = share(read(texts[kernel]), tile, matrix, peak)
  return each | dict(all=len(each) / sum(1 / x for x in each.values()))


def main():
  heads = dict(narrower="to an expert's width", wider="back", matrices="gradient of matrices", all="all")
  schedule.report("mixture", shares, heads)


if __name__ == "__main__":
  main()
