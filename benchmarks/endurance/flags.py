"""Random combinations of flags through whole runs: each trains, stops and goes on, or says one sentence.

    python -m benchmarks.endurance.flags --combinations=300

A recipe of configs/ at `tiny`, with two to six overrides: values that config/schema.py allows, a function
of each slot's menu, keys that mean something together alone, meshes of two devices.  What trains takes one
step, is started again for a second, and has to leave what a run of two steps leaves that was not stopped: the
same checkpoint, records and report.  Ends with 1 where a combination ended otherwise.
"""

import argparse
import importlib
import math
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from benchmarks.endurance import compare, forked
from benchmarks.setting import keep, report, setting, where
from grpojax.config import schema
from grpojax.config.recipe import variants
from grpojax.objective.build import LISTS, SLOTS, functions

NEVER = (
  "name", "scale", "cache_dir", "steps", "verbose", "print_sharding", "profile_steps", "process", "reward",
  "objective", "data", "model.path", "lora.path", "lora.modules", "mesh", "checkpoint", "guard.minutes",
  "cold_start", "sft", "preference", "sample", "judge", "eval.every",
)  # fmt: skip
BYPASS = "objective.shape.bypass={'fn': 'bypass'}"  # the log-probs of sampling are pi_old's
TOGETHER = (
  ("staleness=1", "rollout.in_flight=5", BYPASS),
  ("staleness=2", "rollout.in_flight=5", "rollout.in_flight_kv=recomputed", BYPASS),
  ("staleness=1", "mesh.cpu_devices=2", "mesh.rollout_devices=1"),
  ("model.num_experts=4", "routing_replay=R3"),
  ("model.num_experts=4", "routing_replay=R2", "load_balance=0.001"),
  ("rollout.top_k=8", "rollout.top_p=0.9"),
  ("interruption.think_tokens=8", "interruption.text=#", "interruption.unless="),
  ("difficulty.kind=ema", "difficulty.weighted=True"),
  ("reference=init", "objective.penalty.kl={'fn': 'kl_k3', 'beta': 0.01}", "reference_sync.every=1"),
  ("objective.advantage.fn=center", "objective.rescale.fn=rms", "moment.kind=completion"),
  ("rows=single", "microbatches=2"),
  ("lora.rank=4", "rollout.weights=int8"),
)
DATA = {"data.prompt_budget": (8, 24), "data.chat": (True, False), "data.overlong_prompts": ("drop", "error")}
MESHES = (dict(data=2), dict(fsdp=2), dict(tensor=2), dict(context=2), dict(data=2, fsdp=1))
MOST = 8  # of a number whose default is smaller
IN_A_HURRY = {  # a quarter of the time to compile, and a second start compiles nothing
  "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
  "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
  "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
}
SMALL = dict(
  verbose=False, checkpoint__every=1, eval__every=1, eval__prompts=4, data__train=48, data__test=16,
  cold_start__steps=3, guard__minutes=4,
)  # fmt: skip


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--combinations", type=int, default=300)
  parser.add_argument("--seed", type=int, default=0)
  args = parser.parse_args()
  found, wrong = Counter(), []
  with tempfile.TemporaryDirectory() as scratch:
    driver = forked.Driver(os.environ | IN_A_HURRY)
    for number in range(args.combinations):
      config, flags = combination(Random(f"{args.seed} {number}"))
      ended, said = one(driver, Path(scratch), config, flags)
      found[ended] += 1
      print(f"{number}: {ended}: {config} {' '.join(flags)}", file=sys.stderr, flush=True)
      if ended.startswith("otherwise"):
        wrong.append([config, *flags])
        print(said[-3000:], file=sys.stderr, flush=True)
  now = setting("benchmarks.endurance.flags")
  keep("flags", now | {"found": dict(found), "wrong": wrong})
  report("flags", f"{table(found)}\n\n{where(now)}\n", "faults")
  sys.exit(bool(wrong))


def combination(rng: Random) -> tuple[str, list[str]]:
  """Returns a recipe at `tiny`, and overrides of its flags."""
  recipe = rng.choice([name for name in variants() if name != "base"])
  config = importlib.import_module(f"grpojax.recipes.{recipe}").get_config("tiny")
  flat = schema.flatten(config.to_dict()).items()
  values = {key: value for key, value in flat if not key.startswith(NEVER)}
  draws = [lambda key=key, value=value: draw(key, value, rng) for key, value in sorted(values.items())]
  draws += [lambda key=key, choices=choices: f"{key}={rng.choice(choices)}" for key, choices in DATA.items()]
  draws += [lambda slot=slot: of_slot(slot, rng) for slot in SLOTS + LISTS] * 2
  flags = [f"--config.{draw()}" for draw in rng.sample(draws, rng.randint(2, 6))]
  if rng.random() < 0.5:
    flags += [f"--config.{flag}" for flag in rng.choice(TOGETHER)]
  if rng.random() < 0.25:
    sizes = rng.choice(MESHES)
    flags += ["--config.mesh.cpu_devices=2", *(f"--config.mesh.{axis}={n}" for axis, n in sizes.items())]
  return f"configs/{recipe}.py:tiny", flags


def draw(key: str, default, rng: Random) -> str:
  """Returns `key=value` with a value that the table allows."""
  row = schema.row(key)
  if row.choices:
    return f"{key}={rng.choice(row.choices)}"
  if isinstance(default, bool):
    return f"{key}={rng.choice([True, False])}"
  if isinstance(default, str):
    return f"{key}={default}"
  least, most = (row.range.least, row.range.most) if row.range else (-1, 1)
  if isinstance(default, int):
    near = [least, least + 1, 2, 3, default // 2, default, min(2 * default, max(default, MOST))]
    near = [value for value in near if math.isfinite(value)]
  else:
    near = [least, default / 2, default, 2 * default, 0.5, 1.0]
  allowed = [value for value in near if not row.range or row.range.allows(value)]
  value = rng.choice(allowed or [default])
  return f"{key}={int(value) if isinstance(default, int) else float(min(value, most))}"


def of_slot(slot: str, rng: Random) -> str:
  """Returns an override of a slot by a function of its menu, with that function's own numbers."""
  name = rng.choice(sorted(functions(slot)))
  entry = {"fn": name} | ({"beta": 0.01} if slot == "penalty" else {})
  return f"objective.{slot}={entry if slot in SLOTS else {'it': entry}}"


def one(driver: forked.Driver, scratch: Path, config: str, flags: list[str]) -> tuple[str, str]:
  """Runs a combination; returns how it ended, and its last words."""

  def start(name: str, steps: int) -> tuple[int, str]:
    return driver.start(
      [*forked.flags_of(config, scratch / name, scratch / "cache", **SMALL, steps=steps), *flags]
    )

  for name in ("stopped", "unbroken"):
    shutil.rmtree(scratch / name, ignore_errors=True)
  status, said = start("stopped", 1)
  if forked.refused(status, said):
    return "stopped with one sentence" if "compiling" in said else "refused before anything compiled", said
  if status:
    return f"otherwise: status {status}", said
  status, said = start("stopped", 2)
  if status or not re.search(r"resumed after step 1 of 2", said) or "Traceback" in said:
    return f"otherwise: again, status {status}", said
  status, said = start("unbroken", 2)
  if status:
    return f"otherwise: unbroken, status {status}", said
  found = compare.differences(scratch / "stopped", scratch / "unbroken")
  if different := [what for what, number in found.items() if number]:
    return f"otherwise: {', '.join(different)}", said
  return "trained, stopped, and went on to what an unbroken run leaves", said


def table(found: Counter) -> str:
  rows = {**dict(sorted(found.items())), "**combinations**": found.total()}
  rows["**ended otherwise**"] = sum(n for ended, n in found.items() if ended.startswith("otherwise"))
  return "\n".join(["| | number |", "|---|---|", *(f"| {name} | {n} |" for name, n in rows.items())])


if __name__ == "__main__":
  main()
