"""Streams of the process: a run prints whatever it has to say, wherever its output goes."""

import os
import sys


def open_all() -> None:
  """Lets every print succeed: into nothing where a stream is closed, and as escapes what it cannot encode."""
  for name in ("stdout", "stderr"):
    stream = getattr(sys, name)
    if stream is None:
      setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    elif getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
      stream.reconfigure(errors="backslashreplace")
