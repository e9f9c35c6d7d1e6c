"""What a stage reads that no manifest of a parent speaks for, by its content: the files of a manifest.

    {"grow/samples.jsonl": SHA-256, "config.sft.path: chats.jsonl": SHA-256, "config.model.path": "org/name"}

Rows that another stage has left are among them, as a person may edit them; and every file or folder of this
machine that a key of the config names, config.data.path as well as a judge's.  A folder is the files in it,
without hidden ones.  What is not on this machine, on the hub or in a bucket, counts by its name.
"""

import functools
import glob
import hashlib
from pathlib import Path
from typing import Any

from grpojax.rewards import judged
from grpojax.tools.pipeline.stages import BASE, Stage

ROWS = "samples.jsonl"  # what a `sample` stage leaves; a person may edit it
PATHS = ("path", "test_path")  # last words of the keys that name files and folders
SAVED_SPLITS = "dataset_dict.json"  # in a folder of datasets' save_to_disk, which has a folder a split


def of_stage(stage: Stage, keys: dict[str, Any], workdir: Path) -> dict[str, str]:
  """Returns name -> SHA-256 of all that the stage reads; `keys` are those that decide what it leaves."""
  found = {f"{name}/{ROWS}": digest(workdir / name / ROWS) for name in stage.samples}
  for key, path in _outside(stage, keys).items():
    files = _files(path)
    found |= {f"config.{key}: {name}": _digest_of(file) for name, file in files.items()}
    found |= {} if files else {f"config.{key}": path}
  return found


def digest(file: Path) -> str:
  """Returns the SHA-256 of a file; "" where there is none."""
  if not file.is_file():
    return ""
  with file.open("rb") as opened:
    return hashlib.file_digest(opened, "sha256").hexdigest()


def _outside(stage: Stage, keys: dict[str, Any]) -> dict[str, str]:
  """Returns key -> path of what comes from outside of the chain."""
  named = {key: value for key, value in keys.items() if _is_path(key) and isinstance(value, str) and value}
  own = dict(stage.teachers)  # are stages
  found = {key: path for key, path in named.items() if key not in own and path != judged.INIT}
  model = stage.config.model
  if "path" in model and (stage.kind == BASE or BASE in stage.parents):  # else a stage has made its policy
    found["model.path"] = model.path
  return found


def _is_path(key: str) -> bool:
  return key.rpartition(".")[2] in PATHS or key == "reference" or key.startswith("teacher.paths.")


def _files(path: str) -> dict[str, Path]:
  """Returns name -> file of a file, a folder or a pattern; {} of what is not on this machine."""
  base = Path(path).expanduser()
  if base.is_file():
    return {base.name: base}
  if base.is_dir():
    files = base.glob("**/*" if (base / SAVED_SPLITS).is_file() else "*")
  else:
    files = map(Path, glob.glob(str(base), recursive=True))
    base = next(folder for folder in base.parents if not glob.has_magic(str(folder)))
  named = {file.relative_to(base): file for file in sorted(files) if file.is_file()}
  return {str(name): file for name, file in named.items() if not any(p.startswith(".") for p in name.parts)}


def _digest_of(file: Path) -> str:
  """Returns the SHA-256 of a file that may be weights: a process reads each state of it once."""
  status = file.stat()
  return _digest_once(file, status.st_ino, status.st_size, status.st_mtime_ns)


@functools.cache
def _digest_once(file: Path, *_: int) -> str:
  return digest(file)
