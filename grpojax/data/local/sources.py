"""config.data.train and config.data.test: which files, in which layout; and their rows."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from grpojax.data.local import clean, files, layouts

SPLITS = ("train", "test")
_COLUMNS = ("prompt", "answer", "tests")


class Source(NamedTuple):
  split: str
  name: str
  files: list[Path]
  layout: layouts.Layout

  @property
  def key(self) -> str:
    return f"config.data.{self.split}.{self.name}"


def find(settings: Mapping[str, Any]) -> list[Source]:
  """Every source, its files looked up.  Raises ValueError naming the key that is wrong."""
  for split in SPLITS:
    if not isinstance(settings[split], Mapping):
      raise ValueError(f"config.data.{split} = {settings[split]!r} must be a dict of sources.")
  named = {split: dict(settings[split]) | _short(settings, split) for split in SPLITS}
  if not named["train"]:
    raise ValueError(
      "config.data.path names no file; set it, or config.data.train to one or more sources, as in"
      " {'gsm8k': {'layout': 'gsm8k', 'path': '/data/gsm8k/train*.parquet'}}."
    )
  return [_find(split, name, entry) for split in SPLITS for name, entry in sorted(named[split].items())]


def _short(settings: Mapping[str, Any], split: str) -> dict[str, dict]:
  """The source that config.data.path or .test_path names."""
  path = settings.get("path" if split == "train" else "test_path", "")
  if not path:
    return {}
  columns = {key: settings[key] for key in _COLUMNS if settings["layout"] == "columns" and settings[key]}
  return {"file": dict(layout=settings["layout"], path=path) | columns}


def _find(split: str, name: str, entry: Mapping[str, Any]) -> Source:
  key = f"config.data.{split}.{name}"
  if not isinstance(entry, Mapping):
    raise ValueError(f"{key} = {entry!r} must be a dict with 'layout' and 'path'.")
  entry = dict(entry)
  layout, path = entry.pop("layout", "columns"), entry.pop("path", "")
  if layout != "columns" and layout not in layouts.LAYOUTS:
    menu = ", ".join(["columns", *layouts.LAYOUTS])
    raise ValueError(f"{key}.layout = '{layout}' is unknown; choose one of {menu}.")
  takes = _COLUMNS if layout == "columns" else ()
  for column in entry:
    if column not in takes:
      menu = ", ".join(["layout", "path", *takes])
      raise ValueError(f"{key}.{column} is set, but layout '{layout}' takes {menu}.")
  if layout == "columns" and not entry.get("prompt"):
    raise ValueError(f"{key}.prompt is missing; set it to the column of the question or messages.")
  found = layouts.by_columns(**entry) if layout == "columns" else layouts.LAYOUTS[layout]
  return Source(split, name, files.find(f"{key}.path", path), found)


def read(source: Source, on_malformed: str, dedup: bool) -> tuple[list[dict], clean.Counts]:
  """The source's rows as examples, and what became of the others.

  Raises ValueError where no row is well-formed, and with on_malformed = 'error' for the first that
  is not.
  """
  counts = clean.Counts()
  examples = _examples(source, on_malformed, counts)
  first = next(examples, None)
  if first is None:
    raise ValueError(
      f"{source.key}: of {counts.rows} rows in {len(source.files)} files none can be used"
      f" ({counts.places[0] if counts.places else 'they are empty'}); is its layout the right one?"
    )
  examples = itertools.chain([first], examples)
  return clean.one_of_each(examples, counts) if dedup else list(examples), counts


def _examples(source: Source, on_malformed: str, counts: clean.Counts) -> Iterator[dict[str, str]]:
  for path in source.files:
    for place, row in files.read(path):
      counts.rows += 1
      try:
        yield layouts.to_example(source.layout, files.parse(row))
      except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        if on_malformed == "error":
          raise ValueError(
            f"{source.key}: {path.parent}/{place} is malformed ({reason}); mend it or set"
            " config.data.on_malformed = 'skip'."
          ) from error
        counts.note_malformed(f"{place}: {reason}")
