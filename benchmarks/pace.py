"""Speed at which a TPU's compiler expects to read a matrix: the pod check's bound on decoding.

    python -m benchmarks.pace

A loop multiplies 16 rows with a matrix of 8,192 x 8,192, or adds 1 to it, in bfloat16 on one chip; its
bytes over the compiler's cycles, as a share of the published bandwidth.  `room` is what one product may
take of the memory beside the cores, in MiB; 0: what the compiler takes by itself.
Writes benchmarks/results/pace.json and prints Markdown.
"""

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from benchmarks.setting import keep, setting, where
from grpojax.tools.podcheck import compiled, topology
from grpojax.tools.podcheck.programs import Program
from grpojax.tools.podcheck.roofline import estimate

SLICES, ROOMS = ("v5e:2x2", "v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1"), (0, 32, 48, 64)
N, ROWS = 8192, 16


def product(steps, x, matrix):
  def body(_, x):
    there, x = jax.lax.optimization_barrier((matrix, x))  # read anew for every token, as weights are
    return (x @ there).astype(x.dtype)

  with jax.named_scope("steps"):
    return jax.lax.fori_loop(0, steps, body, x)


def add(steps, x, matrix):
  with jax.named_scope("steps"):
    return jax.lax.fori_loop(0, steps, lambda _, m: m + x[0, 0], matrix)


WORK = {"product of 16 rows": (product, 2 * N * N), "adding 1": (add, 4 * N * N)}  # bytes of one iteration


def share(name: str, fn, moved: int, room: int) -> float:
  """Returns the share of the published bandwidth."""
  found = topology.find(name)
  on_one = SingleDeviceSharding(found.devices[0])
  shape = lambda *s, dtype=jnp.bfloat16: jax.ShapeDtypeStruct(s, dtype, sharding=on_one)
  args = shape(dtype=jnp.int32), shape(ROWS, N), shape(N, N)
  options = {"xla_tpu_scoped_vmem_limit_kib": str(room * 1024)} if room else None
  call = jax.jit(fn, compiler_options=options)
  steps = 1000
  program = Program(call, args, call.lower(*args), dict(steps=steps), 1, {"data": 1})
  done = compiled.compile_for(found, program)
  return moved * steps / found.chip.hbm / estimate.estimate(done.counts, found.chip).seconds


def main():
  found = [
    dict(slice=name, work=work, room=room, share=share(name, fn, moved, room))
    for work, (fn, moved) in WORK.items()
    for room in ROOMS
    for name in SLICES
  ]
  now = setting("benchmarks.pace")
  keep("pace", now | dict(found=found))
  print(f"| | room | {' | '.join(SLICES)} |\n|{'---|' * (2 + len(SLICES))}")
  for work in WORK:
    for room in ROOMS:
      shares = (f"{f['share']:.2f}" for f in found if (f["work"], f["room"]) == (work, room))
      print(f"| {work} | {room or 'its own'} | {' | '.join(shares)} |")
  print(f"\n{where(now)}")


if __name__ == "__main__":
  main()
