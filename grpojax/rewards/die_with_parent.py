"""Importing this module lets the kernel kill this process when its parent ends, however that ends.

A fork server preloads it: the pipe whose end tells a fork server to end is held by its workers, too, and one
of them may hang.
"""

import ctypes
import signal
import sys


def ask_kernel() -> None:
  """Sets the signal that the kernel sends to this process when its parent ends; forked children have none."""
  if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


ask_kernel()
