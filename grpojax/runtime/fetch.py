"""Models in a bucket or on the hub: copied to this machine at their first use."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from etils import epath

from grpojax.runtime import hub, lock, storage

MODEL_FILES = (".json", ".safetensors", ".jinja", ".model", ".txt")


def fetch(name: str, key: str, cache_dir: str) -> Path:
  """Returns a model's folder on this machine: `name` itself, or a copy from the hub or a bucket.

  A copy is made at its first use.  Other files or sizes in the bucket make another one.  Raises ValueError.
  """
  if repository := hub.find(name, "model"):
    patterns = ("LICENSE*", *(f"*{suffix}" for suffix in MODEL_FILES))
    return hub.fetch(repository, key, patterns, ignored=("*/*",))
  folder = storage.resolve(name, key)
  if isinstance(folder, Path):
    if not folder.exists():
      raise ValueError(
        f"{key} = '{name}' is not on this machine; give a folder's path, or a name on the hub such as"
        " Qwen/Qwen2.5-0.5B-Instruct."
      )
    return folder
  files = sorted(folder.iterdir()) if folder.is_dir() else []
  sizes = {file: file.stat().length for file in files if file.suffix in MODEL_FILES and not file.is_dir()}
  if not sizes:
    raise ValueError(f"{key} = '{name}' has no files; name a folder with config.json and safetensors.")
  digest = hashlib.sha256("".join(f"{file} {size}\n" for file, size in sizes.items()).encode())
  copy = Path(cache_dir).expanduser() / "models" / f"{folder.name}-{digest.hexdigest()[:16]}"
  if not copy.is_dir():
    with lock.hold(copy.with_suffix(".lock"), f"model {copy}", wait=True):
      if not copy.is_dir():  # else another process was first
        _fetch(sizes, copy)
  return copy


def _fetch(files: Iterable[epath.Path], copy: Path) -> None:
  """Copies files of a bucket beside the folder `copy` and renames it; the caller holds its lock."""
  for left in copy.parent.glob(f".fetching-{copy.name}-*"):  # by a process that was killed
    shutil.rmtree(left)
  with tempfile.TemporaryDirectory(dir=copy.parent, prefix=f".fetching-{copy.name}-") as scratch:
    whole = Path(scratch) / "whole"
    whole.mkdir()
    for file in files:
      with file.open("rb") as source, (whole / file.name).open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 24)
    os.rename(whole, copy)
