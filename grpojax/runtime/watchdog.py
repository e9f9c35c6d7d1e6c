"""A run that makes no progress ends, with the stacks of all its threads, instead of waiting for ever.

Nothing else detects a host that hangs: its peers wait in a collective.  The exit status asks launchers to
start the run again.
"""

import contextlib
import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def watchdog(minutes: float, stacks: Path) -> Iterator[Callable[[], None]]:
  """Yields a function that must be called at least every so many minutes; 0 watches nothing.

  Without a call the stacks go to the file `stacks` and to stderr, and the process ends with EX_TEMPFAIL (75).
  """
  if not minutes:
    yield lambda: None
    return
  timer = None

  def end():
    message = f"no progress for {minutes:g} minutes (config.guard.minutes); all threads:"
    for file in (stacks.open("w"), sys.__stderr__):  # a console or a notebook may have replaced stderr
      print(message, file=file, flush=True)
      faulthandler.dump_traceback(file)
    os._exit(os.EX_TEMPFAIL)

  def alive():
    nonlocal timer
    if timer:
      timer.cancel()
    timer = threading.Timer(60 * minutes, end)
    timer.daemon = True
    timer.start()
    # A thread that never lets go of the interpreter stops the timer too, but not this.
    faulthandler.dump_traceback_later(60 * minutes + 60, exit=True, file=sys.__stderr__)

  alive()
  try:
    yield alive
  finally:
    timer.cancel()
    faulthandler.cancel_dump_traceback_later()
