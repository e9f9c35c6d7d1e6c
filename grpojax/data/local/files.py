"""Rows of JSON, JSON Lines, CSV, Parquet and Arrow files, one at a time, each with where it stands."""

import codecs
import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from glob import glob, has_magic
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from grpojax.data.local import clean, repository
from grpojax.runtime import hub, storage

_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".arrow")
_SPLITS = [  # of a file's name
  re.compile(word)
  for word in ("train", "test", r"valid|(?<![a-z])val(?![a-z])", r"(?<![a-z])(?:dev|eval)(?![a-z])")
]
_BATCH = 128  # rows of a Parquet file in memory at once; one row of unit tests can be megabytes
_LONGEST = 1 << 30  # characters of a CSV field
# What datasets' save_to_disk writes beside the rows.
_STATE = ("dataset_info.json", "state.json", "dataset_dict.json")


def find(key: str, path: str, subset: str = "", split: str = "", of_test: bool = False) -> list[Path]:
  """Returns the files of a path: a file, a folder, a pattern such as 'gs://data/gsm8k/train-*.parquet', or a
  dataset on the hub, fetched.

  `key` names the section of the config in the errors; `subset` and `split` say which part of a dataset of
  several.  Raises ValueError for a folder that holds several splits: the path has to name the files of one.
  """
  if not path:
    raise ValueError(f"{key}.path is empty; set it to a file, folder or pattern, or a dataset on the hub.")
  if found := hub.find(path, "dataset"):
    return repository.fetch(key, found, subset, split, of_test, _SUFFIXES)
  base = storage.resolve(path, f"{key}.path")
  if base.is_dir() and (base / "dataset_dict.json").is_file():
    base = _part(key, path, base, split or ("test" if of_test else "train"))
  if has_magic(str(base)) and not base.exists():
    local = isinstance(base, Path)
    files = map(Path, glob(str(base), recursive=True)) if local else base.parent.glob(base.name)
  else:
    files = list(base.iterdir()) if base.is_dir() else [base]
    names = [file.stem.lower() for file in files if base.is_dir()]
    splits = [found[0].group() for s in _SPLITS if (found := [*filter(None, map(s.search, names))])]
    if len(splits) > 1:
      raise ValueError(
        f"{key}.path = '{path}' holds files of {' and '.join(splits)}; write a pattern such as"
        f" '{path}/{splits[0]}*'."
      )
  files = sorted(f for f in files if f.suffix in _SUFFIXES and f.is_file() and f.name not in _STATE)
  if not files:
    said = "is not on this machine" if not has_magic(path) and not base.exists() else "matches no such file"
    raise ValueError(f"{key}.path = '{path}' {said}; {', '.join(_SUFFIXES)} are read.")
  return files


def _part(key: str, path: str, base: Path, split: str) -> Path:
  """Returns the folder of one split, of a folder that DatasetDict.save_to_disk wrote."""
  splits = [str(name) for name in storage.read_json(base / "dataset_dict.json").get("splits", [])]
  if split not in splits:
    raise ValueError(f"{key}.path = '{path}' has no split '{split}', but {', '.join(splits)}; name one.")
  return base / split


def read(path: Path) -> Iterator[tuple[str, Any]]:
  """Yields ('train.jsonl:17', row): lines and rows are counted from 1.

  A row is a dict, or the bytes of a JSON line, which `parse` reads, so that one bad line costs one row.
  Raises ValueError where the file as a whole cannot be read.
  """
  number = 0
  try:
    rows = {".parquet": _parquet, ".csv": _csv, ".arrow": _arrow}.get(path.suffix)
    rows = rows or (_array if _is_array(path) else _lines)
    for number, row in rows(path):
      yield f"{path.name}:{number}", row
  except Exception as error:  # of damaged files, libraries raise anything
    after = f" after row {number}" if number else ""
    raise ValueError(f"{path} cannot be read{after} ({clean.reason(error)}); bring it again.") from error


def parse(row: Any) -> dict[str, Any]:
  """Returns the columns of a row.  Raises ValueError where it has none."""
  columns = _loads(row.strip().decode("utf-8-sig")) if isinstance(row, bytes) else row
  if isinstance(columns, _Twice):
    raise ValueError(f"the key '{columns.key}' stands there twice")
  if not isinstance(columns, dict):
    raise ValueError(f"a row is an object with columns, not {type(columns).__name__}")
  if None in columns:
    raise ValueError("it has more fields than the first line has columns")
  return columns


class _Twice(NamedTuple):
  """Stands for a JSON object in which a key occurs twice, so that its value is ambiguous."""

  key: str


def _object(pairs: list[tuple[str, Any]]) -> dict | _Twice:
  keys = Counter(key for key, _ in pairs)
  twice = [key for key, count in keys.items() if count > 1]
  return _Twice(twice[0]) if twice else dict(pairs)


def _loads(text: str | bytes) -> Any:
  return json.loads(text, object_pairs_hook=_object)


def _lines(path: Path):
  with path.open("rb") as file:
    for number, line in enumerate(file, 1):
      if line.strip():
        yield number, line


def _array(path: Path):
  yield from enumerate(_loads(path.read_bytes()), 1)


def _csv(path: Path):
  """Yields rows below the first line, which names the columns; every value is a text."""
  csv.field_size_limit(_LONGEST)
  with path.open(encoding="utf-8-sig", newline="") as file:
    rows = csv.DictReader(file, strict=True)
    twice = [name for name, count in Counter(rows.fieldnames or []).items() if count > 1]
    if twice:
      raise ValueError(f"the column '{twice[0]}' stands there twice")
    yield from enumerate(rows, 1)


def _parquet(path: Path):
  with path.open("rb") as opened, pq.ParquetFile(opened, page_checksum_verification=True) as file:
    batches = file.iter_batches(batch_size=_BATCH)
    yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)


def _arrow(path: Path):
  """Yields the rows of Arrow's stream format, which save_to_disk writes, or of its file format."""
  with path.open("rb") as opened:
    magic = opened.read(6)
    opened.seek(0)
    if magic == b"ARROW1":
      file = pa.ipc.open_file(opened)
      batches = (file.get_batch(i) for i in range(file.num_record_batches))
    else:
      batches = pa.ipc.open_stream(opened)
    yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)


def _is_array(path: Path) -> bool:
  """Returns True for a .json file that is one list of rows, as DeepScaleR's, not one object a line."""
  with path.open("rb") as file:
    return path.suffix == ".json" and file.read(64).removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"["
