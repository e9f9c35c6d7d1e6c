"""The job that is disturbed: its start, its output, and its files on disk."""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.endurance import verifier
from benchmarks.setting import ROOT

MARK = "ENDURANCE_ATTEMPT"  # environment variable of an attempt and of all that it starts
PATIENCE = 1200  # seconds for what should come by itself, also on a machine that does other things
_NUMBERS = itertools.count()


class Job:
  """A command and its folder; every `start` is an attempt that goes on where the last one ended."""

  def __init__(self, recipe: str, steps: int, workdir: Path, logs: Path):
    self.workdir, self.logs, self.cache = workdir, logs, logs.parent / "cache"
    self.flags = [f"--config=benchmarks/endurance/recipe.py:{recipe}", f"--config.steps={steps}"]
    self.flags += [f"--workdir={workdir}", f"--config.cache_dir={self.cache}"]

  def start(self, kill: str = "", flags: tuple[str, ...] = (), prefix: tuple[str, ...] = ()) -> "Attempt":
    """Starts an attempt; `kill`, if given, is an argument of killed.py.

    `flags` come last, and `prefix` is a command that runs the start.
    """
    module = ["benchmarks.endurance.killed", kill] if kill else ["grpojax.main"]
    return Attempt(self, [*prefix, sys.executable, "-m", *module, *self.flags, *flags])

  def sampled(self) -> list[Path]:
    """Returns a file of each attempt, by verifier.py's `seen`."""
    return sorted(self.logs.glob(f"{self.workdir.name}-*.sampled"))

  def saved(self) -> list[int]:
    """Returns the steps of the committed checkpoints, the newest last."""
    return sorted(self.checkpoints())

  def checkpoints(self) -> dict[int, Path]:
    """Returns the folder of each committed checkpoint by its step, whatever the folder's name."""
    folders = {}
    for file in self.workdir.glob("checkpoints/*/_CHECKPOINT_METADATA"):
      if file.parent.name.isdigit():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # on its way out, or damaged
          folders[json.loads(file.read_text())["custom_metadata"]["host"]["step"]] = file.parent
    return folders


class Attempt:
  """One process of a job, whose words go to a file."""

  def __init__(self, job: Job, command: list[str]):
    self.job, self.saved_before = job, job.saved()
    self.mark = f"{os.getpid()}-{next(_NUMBERS)}"
    self.log = job.logs / f"{job.workdir.name}-{self.mark}.log"
    own = {MARK: self.mark, verifier.LOG: str(self.log.with_suffix(".sampled"))}
    own |= {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "PYTHONPATH": str(ROOT)}
    with self.log.open("w") as log:
      self.process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | own, stdout=log, stderr=subprocess.STDOUT
      )
    self.began = time.monotonic()

  def said(self) -> str:
    return self.log.read_text(errors="replace")

  def goes_on(self) -> bool:
    return self.process.poll() is None

  def until(self, ready, seconds: float = PATIENCE) -> bool:
    """Waits; returns True if `ready()` came true while the process was there."""
    end = time.monotonic() + seconds
    while self.goes_on() and time.monotonic() < end:
      if ready():
        return True
      time.sleep(0.01)
    return False

  def steps(self) -> int:
    """Returns the number of steps that the process has taken."""
    return len(re.findall(r"^step \d+/", self.said(), re.MULTILINE))

  def signal(self, number: signal.Signals) -> None:
    if self.goes_on():
      self.process.send_signal(number)

  def wait(self) -> int:
    """Returns the process's status; a process that does not end is aborted, and its log has the stacks."""
    try:
      return self.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
      self.process.send_signal(signal.SIGABRT)
      return self.process.wait()

  def resumed(self) -> int | None:
    """Returns the step after which the process went on, 0 if it began anew, None if it ended before."""
    found = re.search(r"resumed after step (\d+) of", self.said())
    return int(found[1]) if found else 0 if self.steps() else None

  def processes(self) -> list[int]:
    """Returns the processes that the attempt has started, itself among them."""
    return _marked(f"{MARK}={self.mark}".encode())

  def left_behind(self, seconds: float = 15) -> list[int]:
    """Returns processes that the attempt started and that are still there after so long."""
    end = time.monotonic() + seconds
    while (found := self.processes()) and time.monotonic() < end:
      time.sleep(0.1)
    return found


def _marked(entry: bytes) -> list[int]:
  """Returns the processes with this entry in their environment."""
  found = []
  for place in Path("/proc").iterdir():
    if place.name.isdigit():
      try:
        if entry in (place / "environ").read_bytes().split(b"\0"):
          found.append(int(place.name))
      except OSError:  # it has ended
        continue
  return found
