"""SIGKILL before each call of a save that changes which files there are, one after the other, all of them.

    python -m benchmarks.endurance.system_calls

One run (dapo:tiny, a checkpoint a step, two kept, so that each save also deletes one) is started again and
again.  Each start goes on where the last one ended, and is killed in its first save: right before the first
such call, then the second, ... until a save has fewer.  Then the run is let to its end and compared with one
that nothing disturbed.  Calls are counted in all threads, by a library of our own (system_calls.c, which
takes a C compiler).  Ends with 1 if a step is lost or anything differs.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.endurance import compare, forked
from benchmarks.setting import keep, report, setting, where

FLAGS = dict(
  verbose=False, checkpoint__every=1, checkpoint__keep=2, eval__every=1000, rollout__max_tokens=16,
  rollout__segment=4, model__num_hidden_layers=1, remat="none",
)  # fmt: skip
MANY = 100_000  # steps, more than there are calls


def one_start(deadly: int) -> None:
  """Arms the library at the first save of this process, which ends at the second; 0: never.

  With -n the process is killed when its n-th save begins.
  """
  import ctypes

  from grpojax.train import session

  arm, save, saves = ctypes.CDLL(None).arm, session.Session.save, []

  def counted(self, *args):
    if deadly < 0 and len(saves) + 1 == -deadly:
      os.kill(os.getpid(), signal.SIGKILL)
    if saves and deadly > 0:
      session.checkpointer.finish(self.checkpoints)  # of the first, which goes on beside the next step
      arm(ctypes.c_long(0))
      print("all calls are over", flush=True)
      os._exit(0)
    saves.append(arm(ctypes.c_long(max(0, deadly))))
    save(self, *args)

  session.Session.save = counted


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--from", dest="first", type=int, default=1, help="the first call to be killed before")
  parser.add_argument("--every", type=int, default=1, help="of the calls, each so many-th")
  args = parser.parse_args()
  with tempfile.TemporaryDirectory() as scratch:
    found = measure(Path(scratch), args.first, args.every)
  now = setting("benchmarks.endurance.system_calls")
  keep("system_calls", now | found)
  if args.first == args.every == 1:
    report("system calls", f"{table(found)}\n\n{where(now)}\n", "faults")
  else:
    print(table(found))
  sys.exit(bool(found["steps lost"] + found["otherwise"] + sum(found["differences"].values())))


def measure(scratch: Path, first: int, every: int) -> dict:
  """Kills, starts again, and compares."""
  starts = Starts(scratch)
  starts.start("first", 1, 0)  # fills the cache: a run that trains its cold start reports that, too
  otherwise = int(starts.start("cut", MANY, -4)[0] != -9)  # so that the next save deletes one
  calls, lost, number, saved = Counter(), 0, first, starts.saved()
  while True:
    status, said = starts.start("cut", MANY, number)
    resumed = re.search(r"resumed after step (\d+) of", said)
    lost += max(0, saved - int(resumed[1] if resumed else 0))
    saved = starts.saved()
    if "all calls are over" in said:
      break
    killed = re.search(r"killed before (\w+)", said)
    if status != -9 or not killed or "Traceback" in said:
      otherwise += 1
      print(said[-3000:], file=sys.stderr)
      break
    calls[killed[1]] += 1
    print(f"before call {number}, {killed[1]}: step {saved} is saved", file=sys.stderr, flush=True)
    number += every
  last = starts.saved() + 2
  for name in ("cut", "whole"):
    status, said = starts.start(name, last, 0)
    if status:
      raise RuntimeError(f"a start without a kill ended with {status}: {said[-3000:]}")
  different = compare.differences(scratch / "cut", scratch / "whole")
  return {
    "kills": dict(calls), "steps": last, "steps lost": lost, "otherwise": otherwise,
    "differences": different,
  }  # fmt: skip


class Starts:
  """Starts of the run, with the library that counts."""

  def __init__(self, scratch: Path):
    self.scratch, library = scratch, scratch / "system_calls.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    self.driver = forked.Driver(os.environ | {"LD_PRELOAD": str(library)})

  def start(self, name: str, steps: int, deadly: int) -> tuple[int, str]:
    """Starts the run in the folder `name`; returns its status and its words."""
    folder, cache = self.scratch / name, self.scratch / "cache"
    flags = forked.flags_of("configs/dapo.py:tiny", folder, cache, **FLAGS, steps=steps)
    return self.driver.start(flags, "benchmarks.endurance.system_calls:one_start", deadly)

  def saved(self) -> int:
    """Returns the newest step that is committed, 0 for none."""
    folder = self.scratch / "cut" / "checkpoints"
    return max((int(one.name) for one in folder.glob("*") if one.name.isdigit()), default=0)


def table(found: dict) -> str:
  rows = {
    **{f"SIGKILL before a call: {name}": n for name, n in sorted(found["kills"].items())},
    "**all calls of a save**": sum(found["kills"].values()),
    "**steps of the run**": found["steps"],
    "**steps lost beyond the last whole checkpoint**": found["steps lost"],
    "**starts that ended otherwise than by the kill, or with a traceback**": found["otherwise"],
    **{f"**differences: {what}**": n for what, n in sorted(found["differences"].items())},
  }
  return "\n".join(["| | number |", "|---|---|", *(f"| {name} | {n} |" for name, n in rows.items())])


if __name__ == "__main__":
  main()
