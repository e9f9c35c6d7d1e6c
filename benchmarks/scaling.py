"""Time per step against group size, response length, number of prompts and depth, beside the work.

    python -m benchmarks.scaling

The default job's model and data, a policy of random weights that never ends a response, 7 steps of
`train.run` at each size, the sizes in turns, 5 rounds; the medians of all but first steps come from
metrics.jsonl, seconds of compilation from what the first round says.  Work is the matmul FLOPs of a step,
counted.  The last line is the default job at its own size.  Writes benchmarks/results/scaling.json, and the
table into docs/performance.md.
"""

import argparse
import contextlib
import io
import re
import tempfile
from pathlib import Path

import jax
import numpy as np

from benchmarks import clock, ends
from benchmarks.setting import keep, report, setting, where
from grpojax import train
from grpojax.recipes import base
from grpojax.runtime import metrics

SIZE = dict(prompts=8, group_size=8, max_tokens=48, layers=2)
AXES = dict(group_size=(4, 8, 16), max_tokens=(24, 48, 96), prompts=(4, 8, 16), layers=(2, 4, 8))
NAMES = dict(group_size="group size", max_tokens="response tokens", prompts="prompts", layers="layers")
PHASES = ("rollout", "reward", "logprob", "update", "host")


def sizes() -> list[dict]:
  """Returns every size once; the one that all axes share comes first."""
  found = [SIZE]
  for axis, values in AXES.items():
    found += [SIZE | {axis: value} for value in values if value != SIZE[axis]]
  return found


def config_of(size: dict | None, steps: int, cache: str):
  """Returns the config of a size, or for None the default job's own."""
  c = base.get_config()
  c.update(steps=steps, verbose=False, cache_dir=cache)
  c.mesh.data = 1
  c.cold_start.steps = 0
  if size:
    c.model.num_hidden_layers = size["layers"]
    c.rollout.update({key: value for key, value in size.items() if key != "layers"})
    c.updates_per_rollout = 1
  c.data.update(train=512, validation=16, test=32)
  c.eval.update(every=10**6, prompts=c.rollout.prompts, samples=c.rollout.group_size)
  c.checkpoint.every = 10**6
  return c


def run(config) -> dict:
  """Returns seconds of every step but the first by phase, and of compilation by program."""
  said = io.StringIO()
  with tempfile.TemporaryDirectory() as workdir, contextlib.redirect_stdout(said):
    job = train.prepare(config, Path(workdir))
    never = (job.model.spec.vocab_size,)
    programs = ends.programs(config, job.model, job.data.tokenizer, job.mesh, never)
    train.run(job.with_programs(programs))
    records = [r for r in metrics.read(Path(workdir)) if r["kind"] == "train"]
  assert all(r["completions/min_length"] == config.rollout.max_tokens for r in records)
  seconds = {name: [r[f"time/{name}"] for r in records[1:]] for name in ("step", *PHASES)}
  compiled = re.findall(r"compiled (.+) in ([\d.]+) s", said.getvalue())
  return dict(
    seconds=seconds, compiled={name: float(took) for name, took in compiled},
    flops=flops(config, job.model),
  )  # fmt: skip


def medians(rounds: list[dict]) -> dict:
  """Returns medians of one size's steps in all rounds; programs compiled in the first."""
  seconds = {name: np.concatenate([r["seconds"][name] for r in rounds]) for name in ("step", *PHASES)}
  phases = {name: float(np.median(seconds[name])) for name in PHASES}
  first = {key: rounds[0][key] for key in ("compiled", "flops")}
  return clock.summary(seconds["step"]) | dict(phases=phases) | first


def flops(config, model) -> float:
  """Returns matmul FLOPs of a rollout, which computes a prompt once, and of an update of all rows.

  Log-probs taken before the update are not in.
  """
  s, c = model.spec, config.rollout
  count = {name: sum(x.size for x in jax.tree.leaves(leaf)) for name, leaf in model.shapes.items()}
  rows, L, T = c.prompts * c.group_size, config.data.prompt_budget, c.max_tokens

  def forward(prompts):
    pairs = rows * ((L + T) ** 2 - L**2) / 2 + prompts * L**2 / 2
    attention = 4 * s.num_hidden_layers * s.num_attention_heads * s.head_dim * pairs
    return 2 * count["layers"] * (rows * T + prompts * L) + 2 * count["embedding"] * rows * T + attention

  return forward(c.prompts) + 3.0 * forward(rows)  # backward: twice a forward pass


def table(results: list[tuple[dict, dict]]) -> str:
  """Formats each size with its ratio to the smallest of its axis."""
  lines = [
    "| grows | size | per step (quartiles) | × time | × work | update compiled, s | rollout compiled, s |",
    "|---|---|---|---|---|---|---|",
  ]
  for axis, values in AXES.items():
    mine = [next(r for size, r in results if size == SIZE | {axis: value}) for value in values]
    for value, r in zip(values, mine, strict=True):
      times, work = r["wall"] / mine[0]["wall"], r["flops"] / mine[0]["flops"]
      update = sum(s for name, s in r["compiled"].items() if "rollout" not in name)
      rollout = sum(s for name, s in r["compiled"].items() if "rollout" in name)
      cells = f"{clock.said(r)} | {times:.2f} | {work:.2f} | {update:.1f} | {rollout:.1f}"
      lines.append(f"| {NAMES[axis]} | {value} | {cells} |")
  return "\n".join(lines)


def shares(r: dict) -> str:
  parts = ", ".join(f"{name} {100 * r['phases'][name] / r['wall']:.1f} %" for name in PHASES)
  return f"The default job's step of {r['wall']:.2f} s: {parts}."


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--steps", type=int, default=7)
  parser.add_argument("--rounds", type=int, default=5)
  args = parser.parse_args()
  jax.config.update("jax_numpy_rank_promotion", "raise")
  with tempfile.TemporaryDirectory() as cache:
    jax.config.update("jax_compilation_cache_dir", f"{cache}/programs")  # later rounds find theirs compiled
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    asked = [*sizes(), None]  # the last: the default job
    found = [[run(config_of(size, args.steps, cache)) for size in asked] for _ in range(args.rounds)]
  *results, (_, default) = zip(asked, map(medians, zip(*found, strict=True)), strict=True)
  now = setting("benchmarks.scaling")
  found = [dict(size=size, **r) for size, r in results]
  keep("scaling", now | dict(sizes=found, default=default))
  report("scaling", f"{table(results)}\n\n{shares(default)}\n\n{where(now)}")


if __name__ == "__main__":
  main()
