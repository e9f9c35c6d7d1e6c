"""What has been measured, a line of points.jsonl each: a run that was killed goes on to the same bytes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Find = Callable[[Any, str], list]  # point, game -> an estimate for each policy


def finder(path: Path, size: tuple, measure: Callable[..., list], Estimate: type) -> Find:
  """Returns a function that measures what `path` lacks, as measure(point, game, size), and appends it.

  Raises ValueError where `path` was measured at another size.
  """
  kept = {}
  for line in _whole_lines(path):
    row = json.loads(line)
    if row["size"] != list(size):
      raise ValueError(f"{path} has groups and policies of another size: choose another --out or delete it.")
    kept[row["key"]] = [Estimate(**e) for e in row["estimates"]]

  def find(point: Any, game: str) -> list:
    key = f"{game}: {point!r}"
    if key not in kept:
      kept[key] = measure(point, game, size)
      row = dict(key=key, size=size, estimates=[e._asdict() for e in kept[key]])
      with path.open("a") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return kept[key]

  return find


def _whole_lines(path: Path) -> list[str]:
  """Returns the lines of a file, and cuts off one that a killed run has not finished."""
  if not path.is_file():
    return []
  text = path.read_text()
  whole = text[: text.rfind("\n") + 1]
  if whole != text:
    path.write_text(whole)
  return whole.splitlines()
