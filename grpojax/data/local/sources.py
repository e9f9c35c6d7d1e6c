"""config.data.train and config.data.test: which files in which layout, which generators, and their rows."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from grpojax.data.local import clean, files, generators, layouts, repository

SPLITS = ("train", "test")
_COLUMNS = ("prompt", "answer", "tests", "meta")
_WHERE = ("path", "subset", "split")
_PATH = {"train": "path", "test": "test_path"}  # the short way to name one file
_SPLIT = {"train": "split", "test": "test_split"}
_DRAWN = ("task", "knobs", "rows", "version_seed")  # keys of a generator


class Source(NamedTuple):
  split: str
  name: str
  key: str  # of the config, for error messages
  files: list[Path]  # that decide what its rows are
  read: Callable[[], Iterable[tuple[str, Any]]]  # -> where a row stands, and the row
  to_example: Callable[[Any], dict[str, str]]  # raises for a malformed row


def find(settings: Mapping[str, Any]) -> list[Source]:
  """Returns every source with its files found.  Raises ValueError naming the key that is wrong."""
  for split in SPLITS:
    if not isinstance(settings[split], Mapping):
      raise ValueError(f"config.data.{split} = {settings[split]!r} must be a dict of sources.")
  found = [
    _find(split, name, f"config.data.{split}.{name}", entry)
    for split in SPLITS
    for name, entry in sorted(settings[split].items())
  ]
  found += [_of_one_file(settings, split) for split in SPLITS if settings.get(_PATH[split])]
  if settings.get("task", "local") != "local":
    name = settings["task"].partition(":")[2]
    found.append(_generator("train", name, "config.data", {key: settings[key] for key in _DRAWN}))
  if not found:
    raise ValueError(
      "config.data.path names no file; set it, or config.data.task to a generator, or config.data.train (to"
      " evaluate only, config.data.test) to one or more sources, as in"
      " {'gsm8k': {'layout': 'gsm8k', 'path': '/data/gsm8k/train*.parquet'}}."
    )
  return found


def _of_one_file(settings: Mapping[str, Any], split: str) -> Source:
  """Returns the source that config.data.path or .test_path names."""
  path = settings[_PATH[split]]
  layout = settings["layout"] or _layout(path)
  columns = {key: settings[key] for key in _COLUMNS if layout == "columns" and settings[key]}
  entry = dict(layout=layout, path=path, subset=settings["subset"], split=settings[_SPLIT[split]]) | columns
  try:
    return _find(split, "file", "config.data", entry)
  except ValueError as error:  # the file of the test split has another key
    raise ValueError(str(error).replace("config.data.path", f"config.data.{_PATH[split]}")) from None


def _find(split: str, name: str, key: str, entry: Mapping[str, Any]) -> Source:
  if not isinstance(entry, Mapping):
    raise ValueError(f"{key} = {entry!r} must be a dict with 'layout' and 'path', or with 'task'.")
  if "task" in entry:
    return _generator(split, name, key, entry)
  entry = dict(entry)
  path, subset, own_split = (entry.pop(name, "") for name in _WHERE)
  layout = entry.pop("layout", "") or _layout(path)
  if layout != "columns" and layout not in layouts.LAYOUTS:
    menu = ", ".join(["columns", *layouts.LAYOUTS])
    raise ValueError(f"{key}.layout = '{layout}' is unknown; choose one of {menu}.")
  takes = _COLUMNS if layout == "columns" else ()
  for column in entry:
    if column not in takes:
      menu = ", ".join(["layout", *_WHERE, *takes])
      raise ValueError(f"{key}.{column} is set, but layout '{layout}' takes {menu}.")
  if layout == "columns" and not entry.get("prompt"):
    raise ValueError(f"{key}.prompt is missing; set it to the column of the question or messages.")
  found = layouts.by_columns(**entry) if layout == "columns" else layouts.LAYOUTS[layout]
  paths = files.find(key, path, subset, own_split, split == "test")
  rows = lambda: itertools.chain.from_iterable(map(files.read, paths))
  return Source(split, name, key, paths, rows, lambda row: layouts.to_example(found, files.parse(row)))


def _layout(path: str) -> str:
  """Returns the layout of a path that names none: that of a dataset which is known, else columns."""
  found = repository.known(path)
  return found.layout if found else "columns"


def _generator(split: str, name: str, key: str, entry: Mapping[str, Any]) -> Source:
  """Returns the source whose rows a generator draws."""
  for knob in entry:
    if knob not in _DRAWN:
      raise ValueError(f"{key}.{knob} is set, but a generator takes {', '.join(_DRAWN)}.")
  task, knobs, rows = entry["task"], entry.get("knobs", {}), entry.get("rows", 4096)
  if not isinstance(knobs, Mapping):
    raise ValueError(f"{key}.knobs = {knobs!r} must be a dict.")
  first = generators.first_seed(key, entry.get("version_seed", 0), split, rows)
  read = partial(generators.read, key, task, knobs, rows, first)
  return Source(split, name, key, generators.find(key, task), read, generators.to_example)


def read(source: Source, on_malformed: str, dedup: bool) -> tuple[list[dict], clean.Counts]:
  """Returns the source's rows as examples, and the counts of the others.

  Raises ValueError where no row is well-formed, and with on_malformed = 'error' for the first malformed
  row.
  """
  counts = clean.Counts()
  examples = _examples(source, on_malformed, counts)
  first = next(examples, None)
  if first is None:
    raise ValueError(
      f"{source.key}: of {counts.rows} rows none can be used"
      f" ({counts.locations[0] if counts.locations else 'they are empty'}); is its layout the right one?"
    )
  examples = itertools.chain([first], examples)
  return clean.deduplicate(examples, counts) if dedup else list(examples), counts


def _examples(source: Source, on_malformed: str, counts: clean.Counts) -> Iterator[dict[str, str]]:
  for location, row in source.read():
    counts.rows += 1
    try:
      yield source.to_example(row)
    except Exception as error:  # whatever a row of a shape that no such file has leads to
      reason = clean.reason(error)
      if on_malformed == "error":
        raise ValueError(
          f"{source.key}: {location} is malformed ({reason}); mend it or set"
          " config.data.on_malformed = 'skip'."
        ) from error
      counts.note_malformed(f"{location}: {reason}")
