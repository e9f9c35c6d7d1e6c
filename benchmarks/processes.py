"""Time per step against the number of processes that share a run's devices.

    python -m benchmarks.processes

Four devices of this machine's processor, of one, two or four processes, that talk over loopback; the
default job's model and data from random weights, 16 prompts of 8 samples, 12 steps of `python -m
grpojax.main` in each way, in turns, 3 rounds.  The medians of all but the first two steps come from
metrics.jsonl, whose rewards must be those of one process: the work is the same.  Writes
benchmarks/results/processes.json, and the table into docs/performance.md.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import clock
from benchmarks.setting import ROOT, keep, report, setting, where
from grpojax.runtime import metrics

DEVICES, COUNTS, STEPS, WARM = 4, (1, 2, 4), 12, 2
PHASES = ("rollout", "reward", "logprob", "update", "host")
FLAGS = {
  "steps": STEPS, "verbose": False, "mesh.data": -1, "cold_start.steps": 0, "rollout.prompts": 16,
  "eval.every": 10**6, "eval.on_start": False, "checkpoint.every": 10**6,
}  # fmt: skip


def run(count: int, cache: Path) -> dict:
  """Returns seconds by phase, and rewards, of the steps that count, of a run of `count` processes."""
  with socket.create_server(("127.0.0.1", 0)) as free:
    address = f"127.0.0.1:{free.getsockname()[1]}"
  with tempfile.TemporaryDirectory() as workdir:
    flags = FLAGS | {"cache_dir": cache, "mesh.cpu_devices": DEVICES // count}
    command = [sys.executable, "-m", "grpojax.main", "--config=configs/base.py", f"--workdir={workdir}/run"]
    command += [f"--config.{key}={value}" for key, value in flags.items()]
    shared = os.environ | {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": str(count)}
    with (Path(workdir) / "said").open("w") as said:
      pipes = dict(cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)
      own = [shared | {"JAX_PROCESS_ID": str(number)} for number in range(count)]
      started = [subprocess.Popen(command, env=env, **pipes) for env in own]
      if any([process.wait() for process in started]):
        sys.exit(f"{count} processes did not end well:\n{(Path(workdir) / 'said').read_text()[-2000:]}")
    records = [r for r in metrics.read(Path(workdir) / "run") if r["kind"] == "train"][WARM:]
  seconds = {name: [r[f"time/{name}"] for r in records] for name in ("step", *PHASES)}
  return dict(seconds=seconds, rewards=[r["reward"] for r in records])


def medians(rounds: list[dict]) -> dict:
  """Returns medians of one number of processes in all rounds: a step with its quartiles, and its phases."""
  of = lambda name: np.concatenate([r["seconds"][name] for r in rounds])
  return clock.summary(of("step")) | dict(phases={name: float(np.median(of(name))) for name in PHASES})


def table(found: dict[int, dict]) -> str:
  """Formats each number of processes with its ratio to one."""
  head = ["processes", "devices of each", "per step (quartiles)", "× time"]
  head += [f"{name}, s" for name in PHASES]
  lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
  for count, r in found.items():
    cells = [str(count), str(DEVICES // count), clock.said(r), f"{r['wall'] / found[1]['wall']:.2f}"]
    cells += [f"{r['phases'][name]:.3f}" for name in PHASES]
    lines.append(f"| {' | '.join(cells)} |")
  return "\n".join(lines)


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--rounds", type=int, default=3)
  args = parser.parse_args()
  with tempfile.TemporaryDirectory() as cache:
    rounds = [{count: run(count, Path(cache)) for count in COUNTS} for _ in range(args.rounds)]
  for found in rounds:
    for count in COUNTS:
      assert np.allclose(found[count]["rewards"], rounds[0][1]["rewards"], atol=1e-6), f"{count} processes"
  found = {count: medians([r[count] for r in rounds]) for count in COUNTS}
  now = setting("benchmarks.processes")
  keep("processes", now | dict(processes=found))
  report("processes", f"{table(found)}\n\n{where(now)}")


if __name__ == "__main__":
  main()
