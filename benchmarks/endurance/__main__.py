"""The default job under random faults, against the same job left alone: one table of the cost.

    python -m benchmarks.endurance --minutes=30
    python -m benchmarks.endurance --minutes=20 --seed=1 --add           # a second sitting, added up

Real processes, started again as a launcher would, on a small file system of their own (a tmpfs, which takes
the right to mount one; without it, no disk is filled).  Faults come from a shuffled deck, several to a run,
at moments drawn from --seed; verifier faults are part of the job and so in both runs.  Not for `nohup`, under
which SIGHUP is ignored.  Ends with 1 if anything differs.
"""

import argparse
import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from benchmarks.endurance import compare, faults, verifier
from benchmarks.endurance.faults import Fault, Timing
from benchmarks.endurance.intruders import INTRUDERS
from benchmarks.endurance.job import Attempt, Job
from benchmarks.setting import keep, recorded, report, setting, where

FAULTS = [*faults.FAULTS, *INTRUDERS]
NEED_A_DISK = ("disk full", "folder becomes read-only")  # of their own
A_RUN = 6  # faults, before it is let to its end


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--minutes", type=float, default=30)
  parser.add_argument("--recipe", default="dapo")
  parser.add_argument("--steps", type=int, default=12)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--add", action="store_true", help="to what is recorded, of another seed")
  args = parser.parse_args()
  end, rng = time.monotonic() + 60 * args.minutes, Random(args.seed)
  with tempfile.TemporaryDirectory() as scratch, _small_disk(Path(scratch) / "disk") as (disk, mounted):
    logs = Path(scratch) / "logs"
    logs.mkdir()
    _undisturbed(Job(args.recipe, 1, Path(scratch) / "first", logs))  # fills the caches
    undisturbed = Job(args.recipe, args.steps, Path(scratch) / "undisturbed", logs)
    timing = _undisturbed(undisturbed)
    found, deck = Found(), _deck(rng, mounted)
    while time.monotonic() + 2 * (timing.start + args.steps * timing.step) < end:
      job = Job(args.recipe, args.steps, disk / f"run-{found.runs}", logs)
      _one_run(job, undisturbed, found, deck, rng, timing, end)
  now = setting("benchmarks.endurance")
  before = recorded("endurance") if args.add else {}
  if before:
    found.add(before)
    now["command"] = f"{before['command']}`, `{now['command']}"
  keep("endurance", now | vars(found) | {"timing": timing._asdict()})
  report("endurance", f"{found.table()}\n\n{where(now)}\n", "faults")
  sys.exit(bool(found.wrong()))


class Found:
  """Counts of what happened over all runs."""

  def __init__(self):
    self.runs = self.attempts = self.resumed = self.lost = self.left_behind = self.otherwise = 0
    self.tracebacks = 0
    self.injected, self.verifiers, self.different = Counter(), Counter(), Counter()

  def add(self, before: dict) -> None:
    """Adds the counts of a sitting before this one."""
    for name, count in vars(self).items():
      setattr(self, name, count + type(count)(before[name]))

  def wrong(self) -> int:
    return self.lost + self.left_behind + self.otherwise + self.tracebacks + self.different.total()

  def table(self) -> str:
    planted = {f"verifier {what}: completions left out": self.verifiers[what] for what in verifier.SHARES}
    rows = {
      **{fault.name: self.injected[fault.name] for fault in FAULTS},
      "**faults**": self.injected.total(),
      "**kinds of fault**": sum(count > 0 for count in self.injected.values()),
      **planted,
      "**runs brought to their end**": self.runs,
      "**starts**": self.attempts,
      "**of which resumed from a checkpoint**": self.resumed,
      "**steps lost beyond the last whole checkpoint**": self.lost,
      "**processes left behind**": self.left_behind,
      "**starts with a traceback**": self.tracebacks,
      "**processes that ended otherwise than promised**": self.otherwise,
      **{f"**differences: {what}**": n for what, n in sorted(self.different.items())},
    }
    lines = [f"| {name} | {count} |" for name, count in rows.items()]
    return "\n".join(["| | number |", "|---|---|", *lines])


def _undisturbed(job: Job) -> Timing:
  """Runs to the end, without a fault."""
  attempt, began = job.start(), time.monotonic()
  attempt.until(attempt.steps)
  start = time.monotonic() - began
  if attempt.wait():
    sys.exit(f"error: the undisturbed run failed:\n{attempt.said()}")
  return Timing(start, (time.monotonic() - began - start) / max(1, attempt.steps() - 1))


def _deck(rng: Random, mounted: bool) -> Iterator[Fault]:
  """Yields faults for ever: every fault as often as it is in the deck, in another order each time."""
  cards = [fault for fault in FAULTS for _ in range(fault.often) if mounted or fault.name not in NEED_A_DISK]
  while True:
    yield from rng.sample(cards, len(cards))


def _one_run(job, undisturbed, found: Found, deck, rng: Random, timing: Timing, end: float) -> None:
  """Disturbs a run, starts it again until it has finished, and compares it."""
  finished, number, damaged = False, 0, False
  while not finished:
    disturb = number < A_RUN and time.monotonic() + timing.start + 12 * timing.step < end
    fault = next(deck) if disturb else None
    attempt = job.start(faults.kill_argument(fault, rng) if fault and fault.phase else "")
    ended = fault.do(attempt, rng, timing) if fault else None
    number += 1
    finished = attempt.wait() == 0
    _note(found, attempt, damaged, fault, ended)
    damaged = damaged and attempt.resumed() is None  # not set aside yet
    damaged = damaged or (ended == "" and fault.name in faults.DAMAGES)
    if not fault and not finished:
      break
  if finished:
    found.different.update(compare.differences(job.workdir, undisturbed.workdir))
    found.different["sampled completions"] += len(compare.sampled(job) ^ compare.sampled(undisturbed))
    found.verifiers.update(compare.failed_verifiers(job))
    found.runs += 1
  shutil.rmtree(job.workdir)


def _note(found: Found, attempt: Attempt, damaged: bool, fault: Fault | None, ended: str | None) -> None:
  """Notes where an attempt began, how it ended, and what is left of it."""
  found.attempts += 1
  whole = attempt.saved_before[: -1 if damaged else None]
  from_step = attempt.resumed()
  if from_step is not None:
    found.resumed += from_step > 0
    found.lost += max(0, (whole[-1] if whole else 0) - from_step)
  left, code = attempt.left_behind(), attempt.process.returncode
  found.left_behind += len(left)
  if fault and ended is not None:
    found.injected[fault.name] += 1
  otherwise = ended or (not fault and code)
  found.otherwise += bool(otherwise)
  traceback = "Traceback (most recent call last)" in attempt.said()
  found.tracebacks += traceback
  what = f"{attempt.job.workdir.name}: {fault.name if fault else 'no fault'}: began after {from_step}, saved"
  print(f"{what} {attempt.job.saved()}, status {code}, left behind {left}", file=sys.stderr, flush=True)
  if otherwise or traceback:
    print(f"not as promised: {ended}\n{attempt.said()[-4000:]}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[tuple[Path, bool]]:
  """Yields a folder, and True if it is a file system of its own, of 64 MB."""
  folder.mkdir()
  mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
  mounted = not subprocess.run(mount, capture_output=True).returncode
  try:
    yield folder, mounted
  finally:
    if mounted:
      subprocess.run(["umount", "--lazy", str(folder)], check=True)


if __name__ == "__main__":
  main()
