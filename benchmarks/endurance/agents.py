"""A job that plays an environment, killed at random moments: it has to end as one that was left alone.

    python -m benchmarks.endurance.agents --kills=20

GiGPO on FrozenLake (gigpo:tiny_lake after 200 steps of imitation, a checkpoint every second step), in real
processes with workers of their own.  Every other kill comes while the process starts, and the others in the
second to fourth step that it takes; then the job is let to its end.  Ends with 1 if anything differs.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from benchmarks.endurance import compare, faults
from benchmarks.endurance.faults import Timing
from benchmarks.endurance.job import Attempt, Job
from benchmarks.setting import keep, report, setting, where

RECIPE = "gigpo:tiny_lake"
FLAGS = tuple(
  f"--config.{key}={value}"
  for key, value in {
    "cold_start.steps": 200, "env.turns": 8, "rollout.max_tokens": 224, "rollout.group_size": 8,
    "eval.samples": 8, "eval.every": 10,
  }.items()
)  # fmt: skip
STEPS_A_KILL = 3  # of the job, at most: so many are taken before a kill in training
KILLS = (faults.killed_at_the_start, faults.killed_in_training)


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--kills", type=int, default=20)
  parser.add_argument("--seed", type=int, default=0, help="of the moments")
  args = parser.parse_args()
  steps = STEPS_A_KILL * (args.kills // len(KILLS) + 2)
  with tempfile.TemporaryDirectory() as scratch:
    found = measure(Path(scratch), args.kills, steps, Random(args.seed))
  now = setting("benchmarks.endurance.agents")
  keep("endurance_agents", now | found)
  report("endurance of agents", f"{table(found)}\n\n{where(now)}\n", "faults")
  wrong = found["steps lost"] + found["otherwise"] + found["left behind"]
  sys.exit(bool(wrong + sum(found["differences"].values())))


def measure(scratch: Path, kills: int, steps: int, rng: Random) -> dict:
  """Plays the job undisturbed, then killed again and again, and compares."""
  logs = scratch / "logs"
  logs.mkdir()
  first = Job(RECIPE, 1, scratch / "first", logs)
  undisturbed, killed = (Job(RECIPE, steps, scratch / name, logs) for name in ("undisturbed", "killed"))
  _to_its_end(first.start(flags=FLAGS))  # fills the caches
  timing = _to_its_end(undisturbed.start(flags=FLAGS))
  found = {"steps": steps, "kills": {kill.__name__: 0 for kill in KILLS}}
  found |= {"steps lost": 0, "otherwise": 0, "left behind": 0}
  for number in range(kills):
    kill = KILLS[number % len(KILLS)]
    attempt = killed.start(flags=FLAGS)
    ended = kill(attempt, rng, timing)
    _note(found, attempt, kill.__name__, ended)
  last = killed.start(flags=FLAGS)
  _to_its_end(last)
  _note(found, last, "", "")
  records = compare.timeless(undisturbed.workdir, "metrics")
  found["steps with contrast"] = sum(0 < record.get("accuracy", 0) < 1 for record in records)
  return found | {"differences": compare.differences(killed.workdir, undisturbed.workdir)}


def _to_its_end(attempt: Attempt) -> Timing:
  began = time.monotonic()
  attempt.until(attempt.steps)
  start = time.monotonic() - began
  if attempt.wait():
    sys.exit(f"error: a run that nothing disturbed failed:\n{attempt.said()}")
  return Timing(start, (time.monotonic() - began - start) / max(1, attempt.steps() - 1))


def _note(found: dict, attempt: Attempt, kill: str, ended: str | None) -> None:
  """Counts a kill, what it has left behind, and the steps that were lost before this start."""
  if kill and ended is not None:
    found["kills"][kill] += 1
  resumed, saved = attempt.resumed(), attempt.saved_before
  found["steps lost"] += max(0, (saved[-1] if saved else 0) - resumed) if resumed is not None else 0
  found["otherwise"] += bool(ended) or "Traceback (most recent call last)" in attempt.said()
  found["left behind"] += len(attempt.left_behind())
  what = f"{kill or 'to the end'}: began after {resumed}, saved {attempt.job.saved()}"
  print(what, file=sys.stderr, flush=True)


def table(found: dict) -> str:
  rows = {
    "SIGKILL while starting": found["kills"]["killed_at_the_start"],
    "SIGKILL while playing or training": found["kills"]["killed_in_training"],
    "**steps of the run**": found["steps"],
    "**of which won some games and lost others**": found["steps with contrast"],
    "**steps lost beyond the last whole checkpoint**": found["steps lost"],
    "**starts that ended otherwise than by the kill, or with a traceback**": found["otherwise"],
    "**processes left behind**": found["left behind"],
    **{f"**differences: {what}**": n for what, n in sorted(found["differences"].items())},
  }
  lines = [f"| {name} | {count} |" for name, count in rows.items()]
  return "\n".join(["| | number |", "|---|---|", *lines])


if __name__ == "__main__":
  main()
