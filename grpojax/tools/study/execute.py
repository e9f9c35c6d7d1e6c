"""Execution of runs here: one after another, or several at once, each with some cores and a device.

A run is a process of its own, so that none can harm another; a stopped run goes on from its checkpoint.  On
Linux a run dies with the process that started it, so that no two ever write to one workdir.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from grpojax.runtime import console, metrics, processes
from grpojax.tools.study import plan
from grpojax.tools.study.plan import Run

ACCELERATORS = ("/dev/nvidia0", "/dev/accel0", "/dev/vfio/0")
LIBC = ctypes.CDLL(None)
SET_PARENT_DEATH_SIGNAL = 1  # of prctl(2)
GRACE = 300.0  # seconds to finish a step and to save, as launchers give them


class Outcome(NamedTuple):
  run: Run
  code: int  # of the process; 0 finished


def concurrency(requested: int) -> int:
  """Returns how many runs go at once: `requested`, or for 0 one, or one a core (at most 8) on CPUs.

  Models that are small enough for a CPU gain little from a second core.
  """
  if requested:
    return requested
  if any(Path(device).exists() for device in ACCELERATORS):
    return 1
  return min(len(cores()), 8)


def everything(runs: list[Run], at_once: int) -> list[Outcome]:
  """Runs the runs that are not done.  The first is alone until it trains: by then it has filled the cache.

  On SIGTERM or Ctrl-C the runs are asked to save, waited for, and KeyboardInterrupt is raised; a run that
  fails does not stop the others, and its error is in `log.txt` of its workdir.
  """
  left, running, outcomes = [run for run in runs if not plan.is_done(run)], {}, []
  first = left[0] if left else None
  signal.signal(signal.SIGTERM, signal.default_int_handler)
  with tqdm(
    total=len(left), disable=None, bar_format="run {n_fmt}/{total_fmt} |{bar}| {remaining} left"
  ) as bar:
    try:
      while left or running:
        alone = first in [run for run, _ in running.values()] and not trains(first)
        for worker in range(at_once):
          if worker not in running and left and not (alone or (running and first in left)):
            run = left.pop(0)
            running[worker] = run, start(run, worker, at_once)
            alone = run is first
        for worker, outcome in list(ended(running)):
          del running[worker]
          outcomes.append(outcome)
          bar.update()
          console.write_line(describe(outcome, len(outcomes), len(outcomes) + len(left) + len(running)))
        time.sleep(0.2)
    except BaseException:
      stop([process for _, process in running.values()])
      raise
  return outcomes


def trains(run: Run) -> bool:
  """Returns True once the run has taken a step: dataset, cold start and programs are then in the cache."""
  return any(record["kind"] == "train" for record in metrics.read(run.workdir))


def start(run: Run, worker: int, at_once: int) -> subprocess.Popen:
  run.workdir.mkdir(parents=True, exist_ok=True)
  mine = cores()[worker::at_once] or cores()
  env = os.environ | ({} if at_once == 1 else device(worker))
  command = [sys.executable, "-m", "grpojax.main", *run.arguments, "--config.verbose=False"]

  def before():  # in the new process
    if hasattr(os, "sched_setaffinity"):
      os.sched_setaffinity(0, mine)
    die_with_parent()

  with (run.workdir / "log.txt").open("ab") as log:
    log.write(f"commit {processes.commit()}\n".encode())
    log.flush()
    return subprocess.Popen(
      command, stdout=log, stderr=subprocess.STDOUT, env=env, start_new_session=True, preexec_fn=before
    )  # fmt: skip


def die_with_parent() -> None:
  """Has the kernel kill this process when its parent ends; elsewhere than on Linux, nothing."""
  if hasattr(LIBC, "prctl"):
    LIBC.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def cores() -> list[int]:
  """Returns the cores that this process may use; on macOS all of them."""
  if hasattr(os, "sched_getaffinity"):
    return sorted(os.sched_getaffinity(0))
  return list(range(os.cpu_count() or 1))


def device(worker: int) -> dict[str, str]:
  """Returns the environment in which only one GPU, or one chip of a TPU host, is seen."""
  one = "1,1,1"
  return {
    "CUDA_VISIBLE_DEVICES": str(worker),
    "TPU_VISIBLE_CHIPS": str(worker),
    "TPU_CHIPS_PER_PROCESS_BOUNDS": one,
    "TPU_PROCESS_BOUNDS": one,
  }


def ended(running: dict) -> Iterator[tuple[int, Outcome]]:
  """Yields the workers whose processes have ended."""
  for worker, (run, process) in running.items():
    if (code := process.poll()) is not None:
      yield worker, Outcome(run, code)


def stop(processes: list[subprocess.Popen]) -> None:
  """Asks the runs to save, and waits until they have."""
  for process in processes:
    process.terminate()
  end = time.monotonic() + GRACE
  for process in processes:
    try:
      process.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
      process.kill()


def describe(outcome: Outcome, number: int, of: int) -> str:
  """Formats one line about a run that has ended."""
  run = outcome.run
  what = f"{number}/{of} {run.row.label}, seed {run.seed}"
  if outcome.code:
    return f"{what}: failed with status {outcome.code}, see {run.workdir / 'log.txt'}"
  evals = [record for record in metrics.read(run.workdir) if record["kind"] == "eval"]
  shown = [f"{100 * record['eval/pass@1']:.1f}" for record in (evals[0], evals[-1])]
  return f"{what}: pass@1 {shown[0]} -> {shown[1]} %"
