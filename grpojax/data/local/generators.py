"""Rows that reasoning-gym's generators draw, one at a time, each with where it stands, as those of files."""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from grpojax.data import procedural
from grpojax.runtime import console

LIBRARY = "reasoning_gym"
_SPACING = 1_000_000  # entry i of seed s is entry i - 1 of seed s + 1, so a split's seeds are that far apart
_LAST_VERSION = 999
_PROBED = 16  # rows that are drawn before the time of all is estimated
_LONG = 60.0  # seconds


def find(key: str, task: str) -> list[Path]:
  """Returns the file that changes with the library's version.  Raises ValueError where there is none."""
  library, _, generator = task.partition(":")
  if library != LIBRARY or not generator:
    raise ValueError(f"{key}.task = '{task}' must be '{LIBRARY}:GENERATOR', as '{LIBRARY}:chain_sum' is.")
  try:
    files = metadata.distribution("reasoning-gym").files or []
  except metadata.PackageNotFoundError:
    raise ValueError(f"{key}.task = '{task}': {procedural.MISSING}.") from None
  return [Path(file.locate()) for file in files if file.name == "METADATA"]


def read(key: str, task: str, knobs: Mapping, rows: int, first: int) -> Iterator[tuple[str, dict[str, Any]]]:
  """Yields ('chain_sum:17', row); rows are counted from 1.  Raises ValueError naming `key`."""
  generator = task.partition(":")[2]
  start = time.monotonic()
  try:
    for number, row in enumerate(procedural.draw(generator, dict(knobs), first, rows), 1):
      if number == 1:
        start = time.monotonic()
      yield f"{generator}:{number}", row | dict(generator=generator, knobs=dict(knobs))
      left = (time.monotonic() - start) / _PROBED * (rows - number)
      if number == _PROBED + 1 and left > _LONG:
        console.say(f"drawing {rows} rows of {generator} takes about {console.duration(left)}, once")
  except ValueError as error:
    raise ValueError(f"{key}.knobs: {error}" if "knob" in str(error) else f"{key}.task: {error}") from None


def first_seed(key: str, version: int, split: str, rows: int) -> int:
  """Returns the seed of a split's first row.  Raises ValueError where splits would overlap."""
  for name, value, least, most in ("version_seed", version, 0, _LAST_VERSION), ("rows", rows, 1, _SPACING):
    if not isinstance(value, int) or not least <= value <= most:
      raise ValueError(f"{key}.{name} = {value!r} must be a whole number from {least} to {most:,}.")
  return (2 * version + (split == "test")) * _SPACING


def to_example(row: dict[str, Any]) -> dict[str, str]:
  """Returns the fields of a row; `meta` has all that its verifier needs.  Raises ValueError for a fault."""
  if row["fault"]:
    raise ValueError(row["fault"])
  entry = row["entry"]
  meta = dict(generator=row["generator"], knobs=json.dumps(row["knobs"], sort_keys=True), entry=entry)
  return dict(
    uid=hashlib.sha256(entry["question"].encode()).hexdigest()[:24],  # spaces may be a picture
    question=entry["question"],
    history="",
    answer=entry["answer"] or "",  # none where several are right
    tests="",
    task=f"{LIBRARY}:{row['generator']}",
    meta=json.dumps(meta),
  )
