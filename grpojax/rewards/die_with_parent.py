"""Importing this module lets the kernel kill this process when its parent ends, however that ends.

A fork server preloads it: as long as a worker hangs, that holds the pipe whose end tells a fork server to end.
"""

import ctypes
import signal
import sys


def ask_kernel() -> None:
  """Sets the signal that the kernel sends to this process when its parent ends; forked children have none."""
  if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


ask_kernel()
