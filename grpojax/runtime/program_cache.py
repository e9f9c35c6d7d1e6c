"""The cache of compiled programs on disk: entries appear whole, and a damaged one is compiled anew.

JAX's own cache writes an entry in place: a process that is killed meanwhile leaves half of it, which JAX then
keeps, warning at every start; and a flipped bit is found only by chance.  Here an entry is written beside and
renamed, and begins with its SHA-256.
"""

import contextlib
import hashlib
import os
import tempfile
import time
from pathlib import Path

import jax
from jax._src import compilation_cache, lru_cache  # there is no public way to set a cache of one's own

from grpojax.runtime import console

DIGEST = 32  # bytes
BESIDE = ".writing-"


class VerifiedCache(lru_cache.LRUCache):
  """JAX's cache, without its bound on the size; of equal keys the first stays."""

  def get(self, key: str) -> bytes | None:
    """Returns the program's bytes; None where there is no entry, or a damaged one, which is deleted."""
    found = super().get(key)
    if found is None or hashlib.sha256(found[DIGEST:]).digest() == found[:DIGEST]:
      return found and found[DIGEST:]
    console.say_once(f"{self._path}: compiled programs are not what was written; they are compiled anew")
    self._file(key).unlink(missing_ok=True)
    return None

  def put(self, key: str, value: bytes) -> None:
    """Writes an entry beside and renames it."""
    if self._file(key).exists():
      return
    with tempfile.NamedTemporaryFile(dir=self._path, prefix=BESIDE, delete=False) as beside:
      try:
        beside.write(hashlib.sha256(value).digest() + value)
        beside.close()
        os.replace(beside.name, self._file(key))
      except BaseException:
        with contextlib.suppress(OSError):
          os.unlink(beside.name)
        raise

  def _file(self, key: str) -> Path:
    return Path(self._path) / f"{key}{lru_cache._CACHE_SUFFIX}"


def use(folder: Path) -> None:
  """Makes JAX keep its compiled programs in `folder`; what killed processes left half written goes."""
  for file in folder.glob(f"{BESIDE}*"):
    with contextlib.suppress(FileNotFoundError):  # another start was first
      if time.time() - file.stat().st_mtime > 3600:
        file.unlink()
  compilation_cache.get_file_cache = lambda path: (VerifiedCache(path, max_size=-1), path)
  jax.config.update("jax_compilation_cache_dir", str(folder))
