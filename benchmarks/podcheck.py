"""The pod check's prediction of memory beside the peak of the real update, on this machine's CPU.

    python -m benchmarks.podcheck

Three sizes, each in a process of its own: the pod check's update is compiled and its memory read;
then the run's own update is made.  The peak is that of the process's resident memory, above what it was
when everything was compiled and there were no parameters yet.  Writes benchmarks/results/podcheck.json.
"""

import argparse
import gc
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.setting import ROOT, keep, setting
from grpojax import objective
from grpojax.learner import packing, rows
from grpojax.recipes import base
from grpojax.runtime.compile import malloc_trim
from grpojax.tools.podcheck import check, programs, topology

SIZES = {"small": (256, 4, 128), "medium": (512, 6, 256), "large": (768, 8, 384)}  # width, layers, tokens


def config(size: str):
  D, layers, T = SIZES[size]
  c = base.get_config("mini")
  c.model.update(hidden_size=D, num_hidden_layers=layers, num_attention_heads=8, num_key_value_heads=4,
                 head_dim=D // 8, intermediate_size=3 * D)  # fmt: skip
  c.rollout.update(prompts=4, group_size=4, max_tokens=T)
  c.updates_per_rollout, c.microbatches, c.logprob_chunk = 1, 4, 128
  return c


def one(size: str) -> dict:
  """Returns bytes, predicted and seen."""
  where, c = topology.find("cpu:1"), config(size)
  with tempfile.TemporaryDirectory() as scratch:
    predicted = check.check(c, where, Path(scratch), ("update",)).parts["update"]
    plan = programs.plan(c, where.machine, Path(scratch))
  todo = programs.update(plan)
  update = todo.lowered.compile()
  make = jax.jit(lambda: filled(todo.args[0])).lower().compile()
  batch = jax.block_until_ready(real(plan, todo.args[2]))  # a few KB
  gc.collect()  # what tracing and compiling left would else be freed between the two readings
  malloc_trim()
  before = resident("VmRSS")
  state = jax.block_until_ready(make())
  Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
  jax.block_until_ready(update(state, objective.build(c.objective), batch, {}))
  seen = resident("VmHWM") - before
  return dict(predicted=predicted.needed, seen=seen, memory=predicted.memory)


def real(plan, shapes):
  """Makes a batch in which every response takes its whole budget, packed as a run packs it."""
  batch = filled(shapes)
  P, G, S = shapes.tokens.shape
  L = plan.config.data.prompt_budget
  prompt, length = np.full((P, G), L, np.int32), np.full((P, G), S - L, np.int32)
  place = packing.pack_sequences(prompt, length, rows.pack_spec(plan.config, plan.model, plan.mesh))
  mask, valid = jnp.ones_like(batch.mask), jnp.ones_like(batch.valid)
  prompt, place = jnp.asarray(prompt), jnp.asarray(place)
  return batch._replace(
    mask=mask, valid=valid, prompt_length=prompt, length=jnp.asarray(length), packing_index=place
  )


def filled(shapes):
  return jax.tree.map(lambda x: jnp.full(x.shape, 0.01, x.dtype), shapes)


def resident(field: str) -> int:
  """Returns bytes of this process: VmRSS now, VmHWM at its peak."""
  lines = Path("/proc/self/status").read_text().splitlines()
  return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--size", choices=SIZES, help="one size in this process, for the driver")
  args = parser.parse_args(argv)
  if args.size:
    print(json.dumps(one(args.size)))
    return
  found = {}
  print("| size | predicted, MiB | seen, MiB | predicted / seen |\n|---|---|---|---|")
  for size in SIZES:
    command = [sys.executable, "-m", "benchmarks.podcheck", f"--size={size}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found[size] = json.loads(done.stdout.splitlines()[-1])
    predicted, seen = (found[size][key] / 2**20 for key in ("predicted", "seen"))
    print(f"| {size} | {predicted:.0f} | {seen:.0f} | {predicted / seen:.3f} |", flush=True)
  keep("podcheck", setting("benchmarks.podcheck") | dict(sizes=found))


if __name__ == "__main__":
  main()
