"""Ends a process when its parent ends, however that ends."""

import ctypes
import signal

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with_parent() -> None:
  """Lets the kernel kill this process when its parent ends; elsewhere than on Linux, does nothing.

  To the kernel the parent is the thread that started the process.  What this process forks is not tied.
  """
  if hasattr(_LIBC, "prctl"):
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
