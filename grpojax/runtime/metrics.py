"""A dict of floats -> metrics.jsonl and the loggers, and back.

metrics.jsonl is the source of truth, one record a line:

    {"step": 12, "wall": 1763731800.1, "kind": "train", "reward": 0.41, "time/rollout": 1.9, ...}

`step` counts finished training steps: the evaluation before training is step 0, the first train
record step 1 (a cold start counts its own).  `wall` is Unix time in seconds.  null stands for a
value that was not finite; a value that was not measured has no key.

completions.jsonl holds one group of G completions a line, lengths in tokens:

    {"step": 12, "prompt": "", "completions": [], "rewards": [], "lengths": [], "ended": []}
"""

import hashlib
import json
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from grpojax.runtime import console, storage

KINDS = ("cold_start", "train", "eval")
PHASES = ("start", "reshard", "rollout", "reward", "logprob", "update", "host", "eval", "checkpoint")


class Writer:
  """Appender of records; only process 0 writes, on the other processes every method does nothing.

  `resume_step` is the step of the restored checkpoint: records of later steps are cut, because they
  will be written again.  At 0 nothing was restored and the run starts with empty files.
  commands.txt gets the command line of every start.  What is written goes to `loggers` too
  (runtime/loggers), completions every so many steps, at 0 never.
  """

  def __init__(
    self, workdir: str | os.PathLike, resume_step: int = 0, loggers: Sequence = (), completions_every: int = 0
  ):
    self.active = jax.process_index() == 0
    self.loggers, self.completions_every = loggers, completions_every
    if not self.active:
      return
    workdir = Path(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    with (workdir / "commands.txt").open("a" if resume_step else "w", encoding="utf-8") as file:
      file.write(shlex.join(sys.orig_argv) + "\n")
    self.files, self.hashes = {}, {}
    for name in ("metrics", "completions"):
      path = workdir / f"{name}.jsonl"
      self.hashes[name] = hashlib.sha256(_cut(path, resume_step).encode())
      self.files[name] = path.open("a", encoding="ascii")

  def write(self, kind: str, step: int, metrics: Mapping[str, float]) -> None:
    """Appends one record; `metrics` are floats that have left the device."""
    if not self.active:
      return
    values = {name: _finite(float(value)) for name, value in metrics.items()}
    values |= {f"loggers/{each.name}/lost": each.lost for each in self.loggers if each.lost}
    self._append("metrics", dict(step=int(step), wall=round(time.time(), 3), kind=kind, **values))
    finite = {console.visible(name): value for name, value in values.items() if value is not None}
    for logger in self.loggers:
      logger.write(kind, int(step), finite)

  def completions(self, step: int, records: list[dict]) -> None:
    """Appends one line per group: dicts of prompt, completions, rewards, lengths and ended."""
    if not self.active:
      return
    for record in records:
      rewards = [_finite(float(reward)) for reward in record["rewards"]]
      self._append("completions", {"step": int(step), **record, "rewards": rewards})
      if self.completions_every and step % self.completions_every == 0:
        for logger in self.loggers:
          logger.completions(int(step), _rows(record))

  def flush(self) -> None:
    """Puts all records on disk.  A checkpoint comes after a flush, so that no step up to it is missing."""
    if not self.active:
      return
    for file in self.files.values():
      os.fsync(file.fileno())
    for logger in self.loggers:
      logger.flush()

  def close(self) -> None:
    if not self.active:
      return
    for each in (*self.files.values(), *self.loggers):
      each.close()

  def digests(self) -> dict[str, str]:
    """Returns the SHA-256 of the records so far, by file; {} on the other processes."""
    return {name: hash.hexdigest() for name, hash in self.hashes.items()} if self.active else {}

  def _append(self, name: str, record: dict) -> None:
    line = json.dumps(record, allow_nan=False) + "\n"
    self.hashes[name].update(line.encode())
    self.files[name].write(line)
    self.files[name].flush()

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self.close()




def over_updates(updates: list[Mapping[str, float]]) -> dict[str, float]:
  """Returns the mean over one step's updates; of a name ending in /max the largest, /min the least."""
  merge = {"max": np.max, "min": np.min}
  return {
    name: float(merge.get(name.rpartition("/")[2], np.mean)([u[name] for u in updates]))
    for name in updates[0]
  }


def of_drawn(record: Mapping[str, float]) -> dict[str, float]:
  """Returns the record with "drawn/x", of all that was drawn, as x, which is of what was trained on."""
  drawn = {name.removeprefix("drawn/"): x for name, x in record.items() if name.startswith("drawn/")}
  return {name: x for name, x in record.items() if not name.startswith("drawn/")} | drawn


def read(workdir: str | os.PathLike, name: str = "metrics") -> list[dict]:
  """Returns the records of `<workdir>/<name>.jsonl` in the order written; [] where the file is missing.

  Lines that are no records are said once, and left out.
  """
  records, spoilt = _parse(storage.resolve(workdir, "workdir") / f"{name}.jsonl")
  if spoilt:
    console.say_once(spoilt_sentence(workdir, name))
  return records


class Follower:
  """Reader of `<name>.jsonl` while it grows: each time it parses what is new, or all where it was replaced.

  `keep` is what stays of a record.  Lines that are no records are left out, and a last one without its end
  waits.
  """

  def __init__(self, name: str, keep: Callable[[dict], Any] = lambda record: record):
    self.name, self.keep = name, keep
    self.known = {}  # path -> (inode, bytes that are parsed, what is kept of them)

  def read(self, workdir: str | os.PathLike) -> list:
    """Returns what is kept of all records so far, in the order written; [] where the file is missing."""
    path = Path(workdir) / f"{self.name}.jsonl"
    if not path.exists():
      return []
    inode, start, kept = self.known.get(path, (None, 0, []))
    with path.open("rb") as file:
      status = os.fstat(file.fileno())
      if status.st_ino != inode or status.st_size < start:
        start, kept = 0, []
      file.seek(start)
      new = file.read()
    new = new[: new.rfind(b"\n") + 1]
    records = (_record(line, self.name) for line in new.decode("utf-8", "replace").split("\n"))
    kept = [*kept, *(self.keep(record) for record in records if record is not None)]
    self.known[path] = status.st_ino, start + len(new), kept
    return kept


def spoilt_sentence(workdir: str | os.PathLike, name: str) -> str:
  """Returns which lines of `<workdir>/<name>.jsonl` are no records; "" for none."""
  path = storage.resolve(workdir, "workdir") / f"{name}.jsonl"
  spoilt = _parse(path)[1]
  more = f" and {len(spoilt) - 5} more" if len(spoilt) > 5 else ""
  which = ", ".join(map(str, spoilt[:5]))
  return f"{path}: {len(spoilt)} spoilt lines are left out ({which}{more})" if spoilt else ""


def _parse(path: Path) -> tuple[list[dict], list[int]]:
  """Returns (records, numbers of the lines that are none)."""
  text = storage.read_text(path)
  records, spoilt = [], []
  for number, line in enumerate(text.split("\n"), start=1):
    record = _record(line, path.stem)
    if record is not None:
      records.append(record)
    elif line and number <= text.count("\n"):  # else a last line that was torn: its process was killed
      spoilt.append(number)
  return records, spoilt


def _record(line: str, name: str) -> dict | None:
  """Returns the record that a line of `<name>.jsonl` holds; None if it is none."""
  try:
    record = json.loads(line)
  except (ValueError, RecursionError):
    return None
  return record if isinstance(record, dict) and FORMS[name](record) else None


def _is_metrics(record: dict) -> bool:
  """Returns True for a record of metrics.jsonl: a step, a kind, and numbers or null."""
  numbers = [value for key, value in record.items() if key != "kind"]
  plain = all(map(is_number, numbers))
  return plain and type(record.get("step")) is int and record.get("kind") in KINDS and "wall" in record


def _is_group(record: dict) -> bool:
  """Returns True for a record of completions.jsonl: as many rewards, lengths and ends as completions."""
  parts = [record.get(key) for key in ("completions", "rewards", "lengths", "ended")]
  if type(record.get("step")) is not int or not all(isinstance(part, list) for part in parts):
    return False
  texts, rewards, lengths, _ = parts
  return (
    len({len(part) for part in parts}) == 1
    and isinstance(record.get("prompt"), str)
    and all(isinstance(text, str) for text in texts)
    and all(map(is_number, (*rewards, *lengths)))
  )


def is_number(value) -> bool:
  """Returns True for null and for what a float can hold; JSON may also say NaN, 1e999 or 400 digits."""
  return value is None or (type(value) in (int, float) and abs(value) <= sys.float_info.max)


FORMS = {  # of each file: its records' form
  "metrics": _is_metrics,
  "completions": _is_group,
  "items": lambda record: {"suite", "id"} <= record.keys(),  # of an evaluation
}


def phase_seconds(records: list[dict]) -> dict[str, float]:
  """Returns total seconds by phase over all records, PHASES first."""
  total = dict.fromkeys(PHASES, 0.0)
  for record in records:
    for name, value in record.items():
      if name.startswith("time/") and value is not None:
        phase = name.removeprefix("time/")
        total[phase] = total.get(phase, 0.0) + value
  total.pop("step", None)
  return {phase: seconds for phase, seconds in total.items() if seconds > 0}


def _cut(path: Path, resume_step: int) -> str:
  """Cuts the records after `resume_step`, and a torn last line, by replacing the file; returns the rest."""
  if not path.exists():
    return ""
  kept = [
    record
    for record in read(path.parent, path.stem)
    if resume_step > 0 and (record["step"] <= resume_step or record.get("kind") == "cold_start")
  ]
  text = "".join(json.dumps(record) + "\n" for record in kept)
  storage.write(path, text, encoding="ascii")
  return text


def _rows(record: dict) -> list[dict]:
  """Returns a record of completions.jsonl as a dict a completion, with texts that any logger can show."""
  columns = (record[key] for key in ("completions", "rewards", "lengths", "ended"))
  prompt, see = console.visible(record["prompt"]), console.visible
  return [
    dict(prompt=prompt, completion=see(text), reward=float(reward), length=length, ended=ended)
    for text, reward, length, ended in zip(*columns, strict=True)
  ]


def _finite(value: float) -> float | None:
  return value if math.isfinite(value) else None
