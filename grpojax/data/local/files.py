"""Rows of JSON, JSON Lines and Parquet files, one at a time, each with where it stands."""

import codecs
import json
from collections import Counter
from collections.abc import Iterator
from glob import glob, has_magic
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from grpojax.data.local import clean
from grpojax.runtime import storage

_SUFFIXES = (".jsonl", ".json", ".parquet")
_SPLITS = ("train", "test", "valid")
_BATCH = 128  # rows of a Parquet file in memory at once; one row of unit tests can be megabytes


def find(key: str, path: str) -> list[Path]:
  """Returns the files of a path: a file, a folder, or a pattern such as 'gs://data/gsm8k/train-*.parquet'.

  `key` names the config key in the errors.  Raises ValueError for a folder that holds several splits:
  the path has to name the files of one.
  """
  if not path:
    raise ValueError(f"{key} is empty; set it to a file, folder or pattern.")
  base = storage.resolve(path, key)
  if has_magic(str(base)) and not base.exists():
    local = isinstance(base, Path)
    files = map(Path, glob(str(base), recursive=True)) if local else base.parent.glob(base.name)
  else:
    files = list(base.iterdir()) if base.is_dir() else [base]
    splits = [s for s in _SPLITS if base.is_dir() and any(s in file.stem.lower() for file in files)]
    if len(splits) > 1:
      raise ValueError(
        f"{key} = '{path}' holds files of {' and '.join(splits)}; write a pattern such as"
        f" '{path}/{splits[0]}*'."
      )
  files = sorted(file for file in files if file.suffix in _SUFFIXES and file.is_file())
  if not files:
    raise ValueError(
      f"{key} = '{path}' matches no {', '.join(_SUFFIXES)} file; nothing is fetched from a hub, so"
      " download the dataset and give its path."
    )
  return files


def read(path: Path) -> Iterator[tuple[str, Any]]:
  """Yields ('train.jsonl:17', row): lines and rows are counted from 1.

  A row is a dict, or the bytes of a JSON line, which `parse` reads, so that one bad line costs one row.
  Raises ValueError where the file as a whole cannot be read.
  """
  number = 0
  try:
    rows = _parquet if path.suffix == ".parquet" else _array if _is_array(path) else _lines
    for number, row in rows(path):
      yield f"{path.name}:{number}", row
  except Exception as error:  # of damaged files, libraries raise anything
    after = f" after row {number}" if number else ""
    raise ValueError(f"{path} cannot be read{after} ({clean.reason(error)}); download it again.") from error


def parse(row: Any) -> dict[str, Any]:
  """Returns the columns of a row.  Raises ValueError where it has none."""
  columns = _loads(row.strip().decode("utf-8-sig")) if isinstance(row, bytes) else row
  if isinstance(columns, _Twice):
    raise ValueError(f"the key '{columns.key}' stands there twice")
  if not isinstance(columns, dict):
    raise ValueError(f"a row is an object with columns, not {type(columns).__name__}")
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


def _parquet(path: Path):
  with path.open("rb") as opened, pq.ParquetFile(opened, page_checksum_verification=True) as file:
    batches = file.iter_batches(batch_size=_BATCH)
    yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)


def _is_array(path: Path) -> bool:
  """Returns True for a .json file that is one list of rows, as DeepScaleR's, not one object a line."""
  with path.open("rb") as file:
    return path.suffix == ".json" and file.read(64).removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"["
