"""The cache of compiled programs on disk: entries appear whole, and a damaged one is compiled anew.

JAX's own cache writes an entry in place: a process that is killed meanwhile leaves half of it, which JAX then
keeps, warning at every start; and a flipped bit is found only by chance.  Here an entry is written beside and
renamed, and begins with its SHA-256.

JAX writes what process 0 compiles, and nothing of the others.  The devices are in a program's key: what runs
on a process's own devices, as a reward model does, would be compiled there at every start, and on CPUs
everything.  Here each process writes what no other has.
"""

import contextlib
import hashlib
import os
import tempfile
import time
import warnings
from pathlib import Path

import jax
from jax._src import compilation_cache, compiler, lru_cache  # no public way sets a cache of one's own

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


def _compile_and_write(backend, computation, devices, options, callbacks, name: str, key: str):
  """Returns the program, compiled and written by whoever has its key.

  Programs of all devices have one key for all processes, of which process 0 writes; on CPUs each has another.
  """
  own = devices.is_fully_addressable or backend.platform == "cpu"
  if not own or not jax.process_index():
    return _COMPILE_AS_JAX(backend, computation, devices, options, callbacks, name, key)
  begun = time.monotonic()
  program = compiler.backend_compile_and_load(backend, computation, devices, options, callbacks)
  seconds = time.monotonic() - begun
  if not callbacks and seconds >= jax.config.jax_persistent_cache_min_compile_time_secs:
    try:
      compilation_cache.put_executable_and_time(key, name, program, backend, int(seconds))
    except Exception as error:  # a full disk, a program that none can serialize: as JAX does on process 0
      warnings.warn(f"{name} is compiled and was not written to the cache: {error}", stacklevel=2)
  return program


_COMPILE_AS_JAX = compiler._compile_and_write_cache


def use(folder: Path) -> None:
  """Makes JAX keep its compiled programs in `folder`; what killed processes left half written goes."""
  for file in folder.glob(f"{BESIDE}*"):
    with contextlib.suppress(FileNotFoundError):  # another start was first
      if time.time() - file.stat().st_mtime > 3600:
        file.unlink()
  compiler._compile_and_write_cache = _compile_and_write
  compilation_cache.get_file_cache = lambda path: (VerifiedCache(path, max_size=-1), path)
  jax.config.update("jax_compilation_cache_dir", str(folder))
