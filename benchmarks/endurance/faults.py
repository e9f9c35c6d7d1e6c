"""Faults that are done to a run while it works, each with how the run has to end.

A fault is a function (attempt, rng, timing) -> "" if the process ended as promised, else what it did instead;
None if there was nothing left to disturb.
"""

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from benchmarks.endurance.job import Attempt


class Timing(NamedTuple):
  """Times of the undisturbed run, in seconds."""

  start: float  # until its first step is done
  step: float


class Fault(NamedTuple):
  name: str
  do: Callable
  phase: str = ""  # killed.py's: the process ends itself
  often: int = 1  # cards in the deck


def dies(attempt: Attempt) -> str | None:
  code = attempt.wait()
  return "" if code == -signal.SIGKILL else None if code == 0 else f"status {code}"


def in_training(attempt: Attempt, rng: Random, timing: Timing) -> None:
  """Waits for a moment of its second to fourth step."""
  steps = rng.choice([1, 2, 3])
  attempt.until(lambda: attempt.steps() >= steps)
  attempt.until(lambda: False, rng.uniform(0, timing.step))


def killed_at_the_start(attempt: Attempt, rng: Random, timing: Timing) -> str | None:
  """Kills the process while it imports, restores, compiles or takes its first step."""
  attempt.until(lambda: False, rng.uniform(0, timing.start))
  attempt.signal(signal.SIGKILL)
  return dies(attempt)


def killed_in_training(attempt: Attempt, rng: Random, timing: Timing) -> str | None:
  in_training(attempt, rng, timing)
  attempt.signal(signal.SIGKILL)
  return dies(attempt)


def killed_by_itself(attempt: Attempt, rng: Random, timing: Timing) -> str | None:
  return dies(attempt)


def preempted(attempt: Attempt, rng: Random, timing: Timing) -> str | None:
  """Sends SIGTERM: the step is finished and saved, status 75."""
  in_training(attempt, rng, timing)
  attempt.signal(signal.SIGTERM)
  code = attempt.wait()
  return None if code == 0 else saved_as_said(attempt, code)


def saved_as_said(attempt: Attempt, code: int) -> str:
  said = re.search(r"Stopped after step (\d+) and saved", attempt.said())
  if code != os.EX_TEMPFAIL or not said:
    return f"status {code}"
  saved = attempt.job.saved()[-1]
  return "" if saved == int(said[1]) else f"said {said[1]} and saved {saved}"


def interrupted_twice(attempt: Attempt, rng: Random, timing: Timing) -> str | None:
  """Sends Ctrl-C twice: the second ends the run at once; what the first one saved may be there or not."""
  in_training(attempt, rng, timing)
  attempt.signal(signal.SIGINT)
  attempt.until(lambda: False, rng.uniform(0, 1.5 * timing.step))
  again, too_late = time.monotonic(), not attempt.goes_on()
  attempt.signal(signal.SIGINT)
  code = attempt.wait()
  if code == 0:
    return None
  if code == os.EX_TEMPFAIL or too_late:  # the step had been over before
    return saved_as_said(attempt, code)
  seconds = time.monotonic() - again
  if seconds > 10 + 2 * timing.step:
    return f"{seconds:.0f} s after the second"
  return "" if "Interrupted; the same command" in attempt.said() and code == 1 else f"status {code}"


def disk_filled(attempt: Attempt, rng: Random, timing: Timing) -> str | None:
  """Fills all but some bytes of the disk with another file; the run ends with one sentence."""
  in_training(attempt, rng, timing)
  other = attempt.job.workdir.parent / "other"
  left = rng.choice([0, 4096, 100_000])
  _fill(other, left)
  code = attempt.wait()
  other.unlink()
  said = attempt.said()
  sentence = re.search(r"^error: .*the same command goes on from the last checkpoint", said, re.MULTILINE)
  if code == 0:
    return None
  return "" if code == 1 and sentence and "Traceback" not in said else f"status {code}"


def _fill(file: Path, left: int) -> None:
  """Takes all but so many bytes of a disk that others write to meanwhile."""
  with file.open("wb") as opened:
    while (room := shutil.disk_usage(file.parent).free - left) > 0:
      with contextlib.suppress(OSError):  # there was less, then
        os.posix_fallocate(opened.fileno(), opened.seek(0, os.SEEK_END), room)


def damaged(choose: Callable, change: Callable, attempt: Attempt, rng: Random, timing: Timing) -> str | None:
  """Kills the run once there are two checkpoints, and then changes the newest on disk."""
  attempt.until(lambda: len(attempt.job.saved()) > 1)
  attempt.until(lambda: False, rng.uniform(0, 2 * timing.step))
  attempt.signal(signal.SIGKILL)
  ended = dies(attempt)
  if ended == "":
    _, newest = max(attempt.job.checkpoints().items())
    file = choose(rng, newest)
    file.write_bytes(change(bytearray(file.read_bytes())))
  return ended


def _largest(rng: Random, newest: Path) -> Path:
  """Returns the file with the most of the arrays."""
  return max((f for f in (newest / "tree").rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)


def _host_state(rng: Random, newest: Path) -> Path:
  """Returns the file of the plain data."""
  return newest / "_CHECKPOINT_METADATA"


def _flip(data: bytearray) -> bytes:
  data[len(data) // 2] ^= 4
  return bytes(data)


def _cut(data: bytearray) -> bytes:
  return bytes(data[: len(data) // 2])


_KILLED = ("save", "commit", "rollout", "refill", "evaluation")
FAULTS = [
  Fault("SIGKILL while starting", killed_at_the_start, often=3),
  Fault("SIGKILL while training", killed_in_training, often=8),
  *(Fault(f"SIGKILL in a phase: {phase}", killed_by_itself, phase) for phase in _KILLED),
  Fault("SIGTERM", preempted, often=2),
  Fault("Ctrl-C twice", interrupted_twice, often=2),
  Fault("disk full", disk_filled, often=2),
  Fault("newest checkpoint: a bit flipped", partial(damaged, _largest, _flip)),
  Fault("newest checkpoint: truncated", partial(damaged, _largest, _cut)),
  Fault("newest checkpoint: a bit of the host state flipped", partial(damaged, _host_state, _flip)),
]
DAMAGES = {fault.name for fault in FAULTS if fault.name.startswith("newest")}


def kill_argument(fault: Fault, rng: Random) -> str:
  """Returns when killed.py's process ends itself: soon after its first or second entry."""
  longest = {"save": 0.05, "commit": 0.0}.get(fault.phase, 0.5)
  return f"{fault.phase}:{rng.choice([1, 1, 2])}:{rng.uniform(0, longest):.3f}"
