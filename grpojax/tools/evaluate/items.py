"""Sampled answers on disk: items.jsonl has one line a question, settings.json what decided it.

    {"suite": "", "id": "", "question": "", "answer": "", "n": 4, "correct": 1, "samples": [
      {"text": "", "answer": "", "right": true, "length": 17, "ended": true, "tokens": [17 numbers]}, ...]}

`right` is null where the reward gave no verdict; that counts as wrong.  `length` is in tokens, EOS
included.  With --best_of a sample has a `score` too, null where that reward gave none.  Only process 0
reads and writes.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from grpojax.runtime import metrics, storage


def claim(out: Path, settings: dict) -> dict[tuple[str, str], dict]:
  """Returns the items in `out` by (suite, id); a torn last line is cut off.

  Raises ValueError naming every one of `settings` that differs from that of the items there.
  """
  path = out / "settings.json"
  if path.exists():
    before, settings = storage.read_json(path), json.loads(json.dumps(settings))
    keys = sorted(key for key in before.keys() | settings.keys() if before.get(key) != settings.get(key))
    if keys:
      changes = ", ".join(f"{key}: {before.get(key)!r} -> {settings.get(key)!r}" for key in keys)
      raise ValueError(f"--out={out} holds items of other settings ({changes}); choose another --out.")
  out.mkdir(parents=True, exist_ok=True)
  storage.write(path, json.dumps(settings, indent=2, sort_keys=True))
  _cut(out / "items.jsonl")
  return {(item["suite"], item["id"]): item for item in metrics.read(out, "items")}


def _cut(path: Path) -> None:
  """Cuts the unfinished last line of a process that was killed while it wrote."""
  if path.exists():
    os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


def by_suite(items: Iterable[dict]) -> dict[str, list[dict]]:
  """Returns suite -> its items."""
  found = {}
  for item in items:
    found.setdefault(item["suite"], []).append(item)
  return found


def append(out: Path, items: list[dict]) -> None:
  """Appends items and returns when they are on disk."""
  if not items:  # as on every process but the first
    return
  with (out / "items.jsonl").open("a", encoding="ascii") as file:
    file.writelines(json.dumps(item) + "\n" for item in items)
    file.flush()
    os.fsync(file.fileno())
