"""Faults by others: second starts, changed folders and caches, killed and stopped workers, small limits.

Each is a function (attempt, rng, timing) as in faults.py.  What a refusal has to say stands beside it; what
was changed for it is put back, and the run goes on.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.endurance.faults import Fault, Timing, dies, in_training, saved_as_said
from benchmarks.endurance.job import Attempt


def hung_up(attempt: Attempt, rng: Random, timing: Timing) -> str | None:
  """Sends SIGHUP, as a terminal that closes: the step is finished and saved, status 75."""
  in_training(attempt, rng, timing)
  attempt.signal(signal.SIGHUP)
  code = attempt.wait()
  return None if code == 0 else saved_as_said(attempt, code)


def started_twice(attempt: Attempt, rng: Random, timing: Timing) -> str | None:
  """Starts the run a second time while it goes on."""
  in_training(attempt, rng, timing)
  if not attempt.goes_on():
    return None
  return _refused(attempt, "has a run that goes on: process")


def _refused(attempt: Attempt, said: str, **how) -> str:
  """Starts again; returns "" where that ends with status 1 and one sentence with the words `said`."""
  other = attempt.job.start(**how)
  code, words = other.wait(), other.said()
  fine = code == 1 and re.search(rf"^error: .*{said}", words, re.MULTILINE) and "Traceback" not in words
  return "" if fine and not other.left_behind() else f"status {code} of the other start: {words[-2000:]}"


def refused(change: Callable, said: str, attempt: Attempt, rng: Random, timing: Timing, **how) -> str | None:
  """Kills the run, changes something, starts it, which has to be refused, and takes the change back."""
  if (ended := _killed(attempt, rng, timing)) != "":
    return ended
  workdir = attempt.job.workdir
  with tempfile.TemporaryDirectory() as kept:
    shutil.copytree(workdir, Path(kept) / "run", symlinks=True)
    change(attempt.job)
    wrong = _refused(attempt, said, **how)
    shutil.rmtree(workdir)
    shutil.copytree(Path(kept) / "run", workdir, symlinks=True)
  return wrong


def changed(change: Callable, attempt: Attempt, rng: Random, timing: Timing) -> str | None:
  """Kills the run and changes something that the next start has to mend by itself."""
  if (ended := _killed(attempt, rng, timing)) == "":
    change(attempt.job)
  return ended


def _killed(attempt: Attempt, rng: Random, timing: Timing) -> str | None:
  attempt.until(lambda: len(attempt.job.saved()) > 1)
  attempt.until(lambda: False, rng.uniform(0, 2 * timing.step))
  attempt.signal(signal.SIGKILL)
  return dies(attempt)


def _later(checkpoint: Path, step: int) -> Path:
  """Returns the folder of a later step that is not there: a fault before may have left one."""
  return next(path for n in range(7, 99) if not (path := checkpoint.with_name(str(step + n))).exists())


def renamed(job) -> None:
  """Gives the newest checkpoint a later name."""
  step, newest = max(job.checkpoints().items())
  newest.rename(_later(newest, step))


def exchanged(job) -> None:
  """Gives the two newest checkpoints each other's name."""
  a, b = (folder for _, folder in sorted(job.checkpoints().items())[-2:])
  a.rename(aside := a.with_name("aside"))
  b.rename(a)
  aside.rename(b)


def copied(job) -> None:
  """Copies the newest checkpoint under a later name."""
  step, newest = max(job.checkpoints().items())
  shutil.copytree(newest, _later(newest, step))


def torn(job) -> None:
  """Leaves half a record at the end of the records."""
  for name in ("metrics", "completions"):
    with (job.workdir / f"{name}.jsonl").open("a") as file:
      file.write('{"step": 3, "wal')


def flipped(pattern: str, job) -> None:
  """Flips a bit in the middle of each large file of the cache."""
  for file in job.cache.glob(pattern):
    if file.is_file() and file.stat().st_size > 1000:
      data = bytearray(file.read_bytes())
      data[len(data) // 2] ^= 4
      file.write_bytes(data)


def without_checkpoints(job) -> None:
  shutil.rmtree(job.workdir / "checkpoints")


def cut_config(job) -> None:
  file = job.workdir / "config.json"
  file.write_text(file.read_text()[:100])


def another_run(job) -> None:
  """Puts another run's name beside these checkpoints."""
  file = job.workdir / "run.json"
  file.write_text(re.sub(r'"id": "\w{8}', '"id": "00000000', file.read_text()))


def nothing(job) -> None:
  """Changes nothing: what is refused is in how the run is started."""


def workers(number: int, of_server: bool, attempt: Attempt, rng: Random, timing: Timing) -> str | None:
  """Sends a signal to a verifier's worker, or its server: the run goes on as if nothing had been."""
  in_training(attempt, rng, timing)
  found = [pid for pid in attempt.processes() if _is_server(pid) == of_server and _is_pool(pid)]
  if not found or not attempt.goes_on():
    return None
  try:
    os.kill(rng.choice(found), number)
  except ProcessLookupError:  # it was replaced just now
    return None
  return "" if attempt.wait() == 0 else f"status {attempt.process.returncode}"


def _command(pid: int) -> str:
  try:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
  except OSError:
    return ""


def _is_server(pid: int) -> bool:
  return "-m grpojax.rewards.pool" in _command(pid)


def _is_pool(pid: int) -> bool:
  return _is_server(pid) or "multiprocessing.forkserver" in _command(pid)


def read_only(attempt: Attempt, rng: Random, timing: Timing) -> str | None:
  """Makes the run's folder one in which nothing can be made, changed or removed, not even by root."""
  in_training(attempt, rng, timing)
  immutable = lambda how: subprocess.run(["chattr", "-R", how, attempt.job.workdir], capture_output=True)
  immutable("+i")
  code, said = attempt.wait(), attempt.said()
  immutable("-i")
  if code == 0:
    return None
  sentence = re.search(r"^error: .*the same command goes on from the last checkpoint", said, re.MULTILINE)
  return "" if code == 1 and sentence and "Traceback" not in said else f"status {code}"


SMALL = ("prlimit", f"--as={2 * 10**9}")
GONE = ("sh", "-c", 'd=$(mktemp -d); cd "$d"; rmdir "$d"; exec "$@"', "sh")
INTRUDERS = [
  Fault("SIGHUP", hung_up),
  Fault("second start while it runs", started_twice, often=2),
  Fault("newest checkpoint under a later name", partial(changed, renamed)),
  Fault("two checkpoints exchanged", partial(changed, exchanged)),
  Fault("newest checkpoint copied under a later name", partial(changed, copied)),
  Fault("torn records", partial(changed, torn)),
  Fault("compiled programs: a bit flipped", partial(changed, partial(flipped, "programs/*"))),
  Fault("cold start: a bit flipped", partial(changed, partial(flipped, "cold_start/*/**/*"))),
  Fault("checkpoints gone", partial(refused, without_checkpoints, "checkpoints has gone")),
  Fault("config.json cut short", partial(refused, cut_config, "config.json is no JSON")),
  Fault("checkpoints of another run", partial(refused, another_run, "differs in run")),
  Fault(
    "start with another seed",
    partial(refused, nothing, "another config .seed: 0 -> 1", flags=("--config.seed=1",)),
  ),
  Fault("start with 2 GB of address space", partial(refused, nothing, "address space", prefix=SMALL)),
  Fault("start in a folder that is gone", partial(refused, nothing, "has been deleted", prefix=GONE)),
  Fault("folder becomes read-only", read_only),
  Fault("worker killed", partial(workers, signal.SIGKILL, False)),
  Fault("worker stopped", partial(workers, signal.SIGSTOP, False)),
  Fault("worker's server killed", partial(workers, signal.SIGKILL, True)),
  Fault("worker's server stopped", partial(workers, signal.SIGSTOP, True)),
]
