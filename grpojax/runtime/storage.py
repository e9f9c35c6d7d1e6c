"""Local folders and buckets (gs://), where a run's folder, a model or data may be.

Checkpoints go straight to the bucket: Orbax and TensorStore write there.  Files that grow line by line
cannot, because objects in a bucket cannot be appended to: process 0 writes them on its own disk and copies
them before each checkpoint and at the end.  So a checkpoint in the bucket has the records of all its steps
beside it, and records that are lost with a machine belong to steps that are taken again.
"""

import atexit
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import jax
from etils import epath


def in_bucket(path) -> bool:
  """Returns True for the name of a bucket; a `Path` is of this machine."""
  return "://" in str(path)


def resolve(name: str | os.PathLike, key: str) -> Path | epath.Path:
  """Returns a path of this machine or of a bucket.  Raises ValueError naming `key` without bucket access."""
  if not in_bucket(name):
    return Path(name).expanduser()
  try:
    epath.Path(name).exists()
  except ImportError as error:
    raise ValueError(f"{key} = '{name}': {error}; pip install 'grpojax[gcs]'.") from error
  return epath.Path(name)


def local(name: str | os.PathLike, key: str) -> Path:
  """Returns a path of this machine, which alone has what `key` names.  Raises ValueError for a bucket."""
  if in_bucket(name):
    raise ValueError(f"{key}={name} is a bucket, and only a disk of this machine will do; name a folder.")
  return Path(name).expanduser()


def absolute(folder: Path | epath.Path) -> Path | epath.Path:
  """Returns the folder as an absolute path, as Orbax needs it."""
  return folder.absolute() if isinstance(folder, Path) else folder


def cache(cache_dir: str, name: str) -> Path:
  """Returns the folder `name` of config.cache_dir, as an absolute path."""
  return Path(cache_dir).expanduser().absolute() / name


def make_folder(folder: Path | epath.Path, key: str) -> None:
  """Makes the folder that `key` names, unless it exists.  Raises ValueError where that is impossible."""
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise ValueError(
      f"{key}={folder} cannot be made ({error.strerror}: {error.filename}); name a folder that this user may"
      " write."
    ) from error


@contextlib.contextmanager
def mirror(workdir: Path | epath.Path) -> Iterator[tuple[Path, Callable[[], None]]]:
  """Yields (files, push): the folder where this process writes a run's files, and a copier to `workdir`.

  Use `with mirror(workdir) as (files, push)`; leaving the block also pushes, however it ends.  Without a
  bucket, files is `workdir` itself and push does nothing.  Else the folder is new, with the files that the
  run in `workdir` has so far; only process 0 reads and writes the bucket.
  """
  if isinstance(workdir, Path):
    yield workdir, lambda: None
    return
  files = Path(tempfile.mkdtemp(prefix="grpojax-"))
  atexit.register(shutil.rmtree, files, ignore_errors=True)
  if jax.process_index() != 0:
    yield files, lambda: None
    return
  if workdir.is_dir():
    for file in workdir.iterdir():
      if not file.is_dir():
        (files / file.name).write_bytes(file.read_bytes())
  sent = _stamps(files)

  def push() -> None:
    nonlocal sent
    now = _stamps(files)
    for file in now:
      if now[file] != sent.get(file):
        target = workdir / file.relative_to(files)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    sent = now

  try:
    yield files, push
  finally:
    push()


def write(file: Path | epath.Path, text: str, **how) -> None:
  """Writes all of the new content, or leaves the old file.  `how` is write_text's."""
  if "://" in str(file):  # an object of a bucket is always whole
    file.write_text(text)
    return
  whole = file.with_suffix(".tmp")
  whole.write_text(text, **how)
  os.replace(whole, file)


def read_text(file: Path) -> str:
  """Returns the text of a file, "" where there is none; what is no UTF-8 is replaced, for people to see."""
  return file.read_bytes().decode("utf-8", "replace") if file.exists() else ""


def read_json(file: Path | epath.Path) -> dict:
  """Returns the object of a JSON file.  Raises ValueError naming a file that was cut or changed."""
  try:
    found = json.loads(file.read_text())
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{file} is no JSON ({error}): it was cut or changed; bring it back.") from None
  if not isinstance(found, dict):
    raise ValueError(f"{file} is no JSON object: it was changed; bring it back.")
  return found


def check_room(folder: Path | epath.Path, nbytes: int) -> None:
  """Raises OSError where the disk of a folder lacks room for so many bytes.  A bucket never does."""
  if in_bucket(folder):
    return
  free = shutil.disk_usage(folder).free
  if free < nbytes:
    raise OSError(f"{folder}: {free / 1e9:.2f} GB are free, and a checkpoint needs {nbytes / 1e9:.2f} GB")


def unused(folder: Path | epath.Path, names: Iterable[str]) -> Path | epath.Path:
  """Returns the first of these names in a folder that nothing there has."""
  taken = {one.name for one in folder.iterdir()} if folder.is_dir() else {}  # a bucket has no empty folders
  return next(folder / name for name in names if name not in taken)


def move(source: epath.Path, target: epath.Path) -> None:
  """Moves a folder on the same disk or in the same bucket, which knows of files only."""
  if not in_bucket(source):
    source.rename(target)
    return
  for each in list(source.iterdir()):
    if each.is_dir():
      move(each, target / each.name)
    else:
      each.copy(target / each.name)
  source.rmtree(missing_ok=True)


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
  """Returns file -> (size, time), which change when the file is written."""
  stats = {file: file.stat() for file in sorted(folder.rglob("*")) if file.is_file()}
  return {file: (stat.st_size, stat.st_mtime_ns) for file, stat in stats.items()}
