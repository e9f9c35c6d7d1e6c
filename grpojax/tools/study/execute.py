"""Execution of runs here: by one worker, or by several at once, each with some cores and a device.

A worker is a process that does one run after another (worker.py): what they import and compile, it does once.
A run that ends its process costs nothing but itself, as the next one gets a new worker; a stopped run goes on
from its checkpoint.  On Linux a worker dies with the process that started it, so that no two ever write to
one workdir.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from grpojax.runtime import console, parent_death
from grpojax.tools.study import machine, plan
from grpojax.tools.study.plan import Run

ACCELERATORS = ("/dev/nvidia0", "/dev/accel0", "/dev/vfio/0")
RESERVED = 0.75  # of a GPU's memory, what JAX reserves for a process
GRACE = 300.0  # seconds to finish a step and to save, as launchers give them


class Outcome(NamedTuple):
  run: Run
  code: int  # as of a process; 0 finished


class Worker(NamedTuple):
  process: subprocess.Popen
  devices: int  # config.mesh.cpu_devices of its runs, which a process sets once


def concurrency(requested: int) -> int:
  """Returns how many runs go at once: `requested`, or for 0 one, or one a core (at most 8) on CPUs.

  Models that are small enough for a CPU gain little from a second core.
  """
  if requested < 0:
    raise ValueError(f"--parallel={requested} is how many runs go at once, at least 0.")
  if requested:
    return requested
  if any(Path(device).exists() for device in ACCELERATORS):
    return 1
  return min(len(cores()), 8)


def everything(runs: list[Run], at_once: int) -> list[Outcome]:
  """Runs the runs that are not done.  Those of a group wait until its first trains: it has filled the cache.

  On SIGTERM or Ctrl-C the runs are asked to save, waited for, and KeyboardInterrupt is raised; a run that
  fails does not stop the others, and its error is in `log.txt` of its workdir.
  """
  left, running, outcomes = in_turn([run for run in runs if not plan.is_done(run)]), {}, []
  firsts, workers = {}, {}
  for run in left:
    firsts.setdefault(run.row.group, run)
  filling = list(firsts.values())  # the cache
  signal.signal(signal.SIGTERM, signal.default_int_handler)
  with tqdm(
    total=len(left), disable=None, bar_format="run {n_fmt}/{total_fmt} |{bar}| {remaining} left"
  ) as bar:
    try:
      while left or running:
        filling = [run for run in filling if run not in running.values() or not trains(run)]
        for number in range(at_once):
          if number not in running and (run := startable(left, firsts, filling)):
            left.remove(run)
            running[number] = run
            workers[number] = ready(workers.get(number), run, number, at_once)
            send(workers[number], run)
        for number, code in list(answers({number: workers[number] for number in running})):
          outcomes.append(Outcome(running.pop(number), code))
          filling = [run for run in filling if run is not outcomes[-1].run]
          bar.update()
          console.write_line(describe(outcomes[-1], len(outcomes), len(outcomes) + len(left) + len(running)))
        time.sleep(0.2)
    except BaseException:
      stop([worker.process for worker in workers.values()])
      raise
  for worker in workers.values():
    dismiss(worker)
  return outcomes


def startable(left: list[Run], firsts: dict[str, Run], filling: list[Run]) -> Run | None:
  """Returns the next run that need not wait: the first of a group, or one whose group's fills no cache."""
  waits = lambda run: run is not firsts[run.row.group] and firsts[run.row.group] in filling
  return next((run for run in left if not waits(run)), None)


def in_turn(runs: list[Run]) -> list[Run]:
  """Returns the runs seed by seed, the first of each group before the others, who share its cold start."""
  first = {}
  for run in runs:
    first.setdefault((run.seed, run.row.group), run)
  return sorted(runs, key=lambda run: (run.seed, run is not first[run.seed, run.row.group]))


def trains(run: Run) -> bool:
  """Returns True once the run has taken a step: dataset, cold start and programs are then in the cache."""
  return any(record["kind"] == "train" for record in plan.records(run))


def ready(worker: Worker | None, run: Run, number: int, at_once: int) -> Worker:
  """Returns a worker for the run: this one, or a new one if it has ended or has other devices."""
  devices = run.config.mesh.cpu_devices
  if worker and worker.devices == devices and worker.process.poll() is None:
    return worker
  if worker:
    dismiss(worker)
  return Worker(start(number, at_once), devices)


def start(number: int, at_once: int) -> subprocess.Popen:
  mine = cores()[number::at_once] or cores()
  env = os.environ | device(number, at_once)

  def before():  # in the new process
    if hasattr(os, "sched_setaffinity"):
      os.sched_setaffinity(0, mine)
    parent_death.die_with_parent()

  return subprocess.Popen(
    [sys.executable, "-m", "grpojax.tools.study.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    text=True, env=env, start_new_session=True, preexec_fn=before,
  )  # fmt: skip


def send(worker: Worker, run: Run) -> None:
  """Gives a run to a worker that waits for one."""
  run.workdir.mkdir(parents=True, exist_ok=True)
  log = run.workdir / "log.txt"
  with log.open("ab") as file:
    file.write(machine.note().encode())
  asked = dict(flags=[*run.flags, "--config.verbose=False"], workdir=str(run.workdir), log=str(log))
  print(json.dumps(asked), file=worker.process.stdin, flush=True)


def answers(workers: dict[int, Worker]) -> Iterator[tuple[int, int]]:
  """Yields (number, status) of the workers whose run has ended, be it that they have ended with it."""
  for number, worker in workers.items():
    output = worker.process.stdout
    if select.select([output], [], [], 0)[0]:
      line = output.readline()
      yield number, int(line) if line else worker.process.wait()


def cores() -> list[int]:
  """Returns the cores that this process may use; on macOS all of them."""
  if hasattr(os, "sched_getaffinity"):
    return sorted(os.sched_getaffinity(0))
  return list(range(os.cpu_count() or 1))


def device(worker: int, at_once: int) -> dict[str, str]:
  """Returns the environment in which one of several processes sees only one GPU, or one chip of a TPU host.

  Processes that share a GPU, because they are more than GPUs, divide the memory that JAX reserves of it.
  """
  if at_once == 1:
    return {}
  visible, one = gpus(), "1,1,1"
  env = {
    "TPU_VISIBLE_CHIPS": str(worker),
    "TPU_CHIPS_PER_PROCESS_BOUNDS": one,
    "TPU_PROCESS_BOUNDS": one,
  }
  if visible:
    env["CUDA_VISIBLE_DEVICES"] = visible[worker % len(visible)]
    if at_once > len(visible):
      env["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{RESERVED / -(-at_once // len(visible)):.3f}"
  return env


def gpus() -> list[str]:
  """Returns the NVIDIA GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
  named = os.environ.get("CUDA_VISIBLE_DEVICES")
  if named is None:
    return sorted(path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
  return [name for name in named.split(",") if name]


def dismiss(worker: Worker) -> None:
  """Lets a worker without a run end, and waits for it."""
  worker.process.stdin.close()
  worker.process.wait()
  worker.process.stdout.close()


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
  evals = [record for record in plan.records(run) if record["kind"] == "eval"]
  last = evals[-1]["step"]
  shown = [f"{100 * record['eval/pass@1']:.1f}" for record in evals if record["step"] in (0, last)]
  return f"{what}: pass@1 {' -> '.join(shown)} %"
