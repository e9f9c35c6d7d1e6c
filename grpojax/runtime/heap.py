"""What the C library keeps of freed memory: compiling for a processor takes hundreds of MB for a while."""

import ctypes
import platform

_GLIBC = ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


def give_back() -> None:
  """Returns what is free to the system, so that the next program's compiling begins low; glibc only."""
  if _GLIBC:
    _GLIBC.malloc_trim(0)
