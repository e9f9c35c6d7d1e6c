"""Time per step of rollouts and updates one after the other, ahead, and on devices of their own.

    python -m benchmarks.overlap

Eight devices of this machine's processor, the default job's model, data and cold start, whose responses end
where the policy ends them.  Verdicts take a second: all of a step's, one after the other, as a processor's
would; or every call, of all that has ended, as those of another machine would, by a plain function and by an
`async def`.  Or verdicts are as rare as those of hard questions, and dynamic sampling draws several batches a
step.  Or the policy plays four turns, and the environment of each trajectory takes a second.  5 steps of
`train.run` in each way, in turns, 5 rounds; the medians of all but the first two steps come from
metrics.jsonl, and so do rewards, which must be those of the same staleness.  Writes
benchmarks/results/overlap.json, and the table into docs/performance.md.
"""

import argparse
import asyncio
import contextlib
import io
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from ml_collections import ConfigDict

from benchmarks import clock
from benchmarks.setting import keep, report, setting, where
from grpojax import train
from grpojax.recipes import base
from grpojax.runtime import metrics

DEVICES, SECONDS, COMPLETIONS, TURNS = 8, 1.0, 128, 4
WAYS = {
  "one after the other": {},
  "one step ahead, on the same devices": {"staleness": 1},
  "one step ahead, four devices sample": {"staleness": 1, "mesh.rollout_devices": 4},
  "the same, the newest policy taken up after 16 tokens": {
    "staleness": 1, "mesh.rollout_devices": 4, "rollout.in_flight": 16,
    "objective.shape": {"bypass": {"fn": "bypass"}},
  },
}  # fmt: skip


def each(sample) -> float:
  """Returns 1 for a completion that ends in time, after its share of SECONDS."""
  time.sleep(SECONDS / COMPLETIONS)
  return float(sample.ended)


def together(samples) -> list[float]:
  """Returns the same of all completions, after SECONDS."""
  time.sleep(SECONDS)
  return [float(sample.ended) for sample in samples]


async def together_awaited(samples) -> list[float]:
  """Returns what `together` does, and lets others go on."""
  await asyncio.sleep(SECONDS)
  return [float(sample.ended) for sample in samples]


def rare(samples) -> list[float]:
  """Returns 1 for one completion in 14, by chance, after SECONDS: 45 % of groups of eight are mixed."""
  time.sleep(SECONDS)
  return [float(sum(map(ord, sample.text)) % 14 == 0) for sample in samples]


RARE = "a call's verdicts, dynamic sampling"
WAITS = {
  "a step's verdicts": each,
  "a call's verdicts": together,
  "a call's verdicts, `async def`": together_awaited,
  RARE: rare,
  "a trajectory's environment": None,
}


def ways_of(wait: str) -> list[str]:
  """Returns the ways that go with a wait; turns take up no policy in the middle."""
  return [way for way, changes in WAYS.items() if WAITS[wait] or "rollout.in_flight" not in changes]


def config_of(changes: dict, wait: str, steps: int, cache: str):
  """Returns the config of one way."""
  c = base.get_config()
  c.update(steps=steps, verbose=False, cache_dir=cache)
  c.mesh.data = -1
  c.rollout.update(prompts=16, group_size=8)
  c.dynamic_sampling.enabled = wait == RARE
  if WAITS[wait]:
    c.reward.accuracy = dict(fn=f"benchmarks.overlap:{WAITS[wait].__name__}")
  else:
    c.reward = ConfigDict()
    c.env.update(name="benchmarks.waiting:Waiting", turns=TURNS, action_tokens=8, observation_tokens=8)
    c.env.knobs = ConfigDict(dict(turns=TURNS, seconds=SECONDS / TURNS))
    c.rollout.update(group_size=2, max_tokens=100)  # a process for each trajectory
  c.eval.update(every=10**6, on_start=False, prompts=16, samples=8)
  c.checkpoint.every = 10**6
  c.update_from_flattened_dict(
    {key: value for key, value in changes.items() if "." in key or key == "staleness"}
  )
  return c


def run(config) -> dict[str, list[float]]:
  """Returns seconds and rewards of every step but the first two."""
  with tempfile.TemporaryDirectory() as workdir, contextlib.redirect_stdout(io.StringIO()):
    train.run(train.prepare(config, Path(workdir)))
    records = [r for r in metrics.read(Path(workdir)) if r["kind"] == "train"][2:]
  return dict(seconds=[r["time/step"] for r in records], rewards=[r["reward"] for r in records])


def table(found: dict[str, dict]) -> str:
  """Formats each way with its ratio to the first of its kind."""
  head = "| a second for | rollouts and updates | s a step (quartiles) | steps a second, against the first |"
  lines = [head, "|---|---|---|---|"]
  for wait, ways in found.items():
    first = next(iter(ways.values()))["wall"]
    for name, r in ways.items():
      lines.append(f"| {wait} | {name} | {clock.said(r)} | {first / r['wall']:.2f} |")
  return "\n".join(lines)


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--steps", type=int, default=5)
  parser.add_argument("--rounds", type=int, default=5)
  parser.add_argument("--only", default="", help="Part of `a wait: a way`; the page is then left alone.")
  args = parser.parse_args()
  jax.config.update("jax_num_cpu_devices", DEVICES)
  jax.config.update("jax_numpy_rank_promotion", "raise")
  asked = [(wait, way) for wait in WAITS for way in ways_of(wait) if args.only in f"{wait}: {way}"]
  with tempfile.TemporaryDirectory() as cache:
    jax.config.update("jax_compilation_cache_dir", f"{cache}/programs")  # later rounds find theirs compiled
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    one = lambda wait, way: run(config_of(WAYS[way], wait, args.steps, cache))
    _, *rounds = [{of: one(*of) for of in asked} for _ in range(args.rounds + 1)]
  _, ahead, apart, _ = WAYS
  for wait in WAITS:
    if (wait, ahead) in asked and (wait, apart) in asked:
      same = rounds[0][wait, ahead]["rewards"] == rounds[0][wait, apart]["rewards"]
      assert same, "whoever samples, the numbers are the same"
  found = {}
  for wait, way in asked:
    seconds = np.concatenate([r[wait, way]["seconds"] for r in rounds])
    found.setdefault(wait, {})[way] = clock.summary(seconds)
  now = setting("benchmarks.overlap")
  said = f"{table(found)}\n\n{where(now)}"
  if args.only:
    print(said)
    return
  keep("overlap", now | dict(seconds=found))
  report("overlap", said)


if __name__ == "__main__":
  main()
