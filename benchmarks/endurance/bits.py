"""Flips a bit in every file of a workdir and of the cache, one after the other, and starts the run again.

    python -m benchmarks.endurance.bits

For a file of the workdir a run that has taken two of its four steps goes on; for one of the cache a new run
begins.  Then the run has to equal the undisturbed one, or to be refused in one sentence; a changed record may
stay, and has to be said.  Ends with 1 if a flipped bit changes anything without a word.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

from benchmarks.endurance import compare, forked
from benchmarks.setting import keep, report, setting, where

CONFIG = "configs/dapo.py:tiny"
FLAGS = dict(
  verbose=False, checkpoint__every=1, checkpoint__keep=2, eval__every=2, eval__prompts=8, lora__rank=2,
  cold_start__steps=20, rollout__max_tokens=16, rollout__segment=4, model__num_hidden_layers=1,
  data__train=64, data__test=16,
)  # fmt: skip
ENDS = ("as undisturbed", "said", "refused", "wrong")


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--places", type=int, default=2, help="of each file, one after the other")
  args = parser.parse_args()
  with tempfile.TemporaryDirectory() as scratch:
    found = measure(Path(scratch), args.places)
  now = setting("benchmarks.endurance.bits")
  keep("bits", now | {"found": found})
  report("bits", f"{table(found)}\n\n{where(now)}\n", "faults")
  sys.exit(any(ends.get("wrong") for ends in found.values()))


def measure(scratch: Path, places: int) -> dict[str, dict[str, int]]:
  """Returns by kind of file how often the run ended in which way."""
  driver, found = forked.Driver(dict(os.environ)), defaultdict(Counter)
  run, cache = scratch / "run", scratch / "cache"
  start = lambda folder, steps: driver.start(forked.flags_of(CONFIG, folder, cache, **FLAGS, steps=steps))
  for name, steps in (("whole", 4), ("cut", 2)):
    status, said = start(scratch / name, steps)
    if status:
      raise RuntimeError(f"a start without a fault ended with {status}: {said[-3000:]}")
  shutil.copytree(cache, scratch / "kept", symlinks=True)
  for file, place in _places(scratch, places):
    shutil.rmtree(run, ignore_errors=True)
    whose, name = file.relative_to(scratch).parts[0], file.relative_to(scratch)
    target = run if whose == "cut" else cache
    if whose == "cut":
      shutil.copytree(scratch / "cut", run, symlinks=True)
    _flip(target / file.relative_to(scratch / whose), place)
    status, said = start(run, 4)
    end = _end(scratch, status, said)
    found[_kind(name)][end] += 1
    print(f"{name}, bit {place}: {end}", file=sys.stderr, flush=True)
    if end == "wrong":
      print(said, file=sys.stderr, flush=True)
    if whose == "kept":
      shutil.rmtree(cache)
      shutil.copytree(scratch / "kept", cache, symlinks=True)
  return {kind: dict(ends) for kind, ends in found.items()}


def _places(scratch: Path, number: int) -> Iterator[tuple[Path, int]]:
  """Yields every file that is not empty, with bits of it."""
  files = [file for name in ("cut", "kept") for file in sorted((scratch / name).rglob("*"))]
  for file in files:
    if not file.is_file() or file.is_symlink() or file.name.endswith(".lock"):
      continue
    if size := file.stat().st_size:
      rng = Random(str(file.relative_to(scratch)))
      yield from ((file, place) for place in rng.sample(range(8 * size), number))


def _flip(file: Path, place: int) -> None:
  data = bytearray(file.read_bytes())
  data[place // 8] ^= 1 << place % 8
  file.write_bytes(data)


def _end(scratch: Path, status: int, said: str) -> str:
  """Returns which of ENDS it was."""
  if forked.refused(status, said):
    return "refused"
  if status or "Traceback" in said:
    return "wrong"
  different = {what for what, n in compare.differences(scratch / "run", scratch / "whole").items() if n}
  if not different:
    return "as undisturbed"
  records = {"records of metrics.jsonl", "records of completions.jsonl", "report"}
  named = "has changed since checkpoint" in said or "spoilt lines" in said
  return "said" if different <= records and named else "wrong"


def _kind(file: Path) -> str:
  """Returns the kind of a file: the folder that it lies in, and of checkpoints which."""
  place, *rest = file.parts
  if place == "kept":
    return f"cache: {rest[0]}/"
  if rest[0] == "checkpoints":
    return f"checkpoint {rest[1]} of 2: {'arrays' if len(rest) > 3 else rest[2]}"
  return rest[0] if len(rest) == 1 else f"{rest[0]}/"


def table(found: dict[str, dict[str, int]]) -> str:
  """Returns a row for each kind of file, with the number of flips by end."""
  lines = ["| bits flipped in | " + " | ".join(ENDS) + " |", "|---" * (1 + len(ENDS)) + "|"]
  for kind, ends in [*found.items(), ("**all**", sum((Counter(ends) for ends in found.values()), Counter()))]:
    lines.append(f"| {kind} | " + " | ".join(str(ends.get(end, 0)) for end in ENDS) + " |")
  return "\n".join(lines)


if __name__ == "__main__":
  main()
