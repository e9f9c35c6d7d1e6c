"""A run that makes no progress ends, with the stacks of all its threads, instead of waiting for ever.

Nothing else detects a host that hangs: its peers wait in a collective.  The exit status asks launchers to
start the run again.  A process has one watchdog at a time, so those who make progress need not be handed it.
"""

import contextlib
import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

_watched: list[Callable[[str], None]] = []  # the watchdog's own function, while there is one


def progress(phase: str) -> None:
  """Notes that a phase of the run begins, or goes on; without a watchdog it does nothing."""
  for alive in _watched:
    alive(phase)


@contextlib.contextmanager
def watchdog(minutes: float, phase: str, stacks: Path | None = None) -> Iterator[None]:
  """Asks for `progress` at least every so many minutes, from the first on, in `phase`; 0 watches nothing.

  Without it the stacks go to the file `stacks` and to stderr, and the process ends with EX_TEMPFAIL (75).
  """
  if not minutes:
    yield
    return
  timer, now = None, phase

  def end():
    message = f"no progress for {minutes:g} minutes (config.guard.minutes) while {now}; all threads:"
    files = [stacks.open("w")] if stacks and stacks.parent.is_dir() else []
    for file in (*files, sys.__stderr__):  # a console or a notebook may have replaced stderr
      print(message, file=file, flush=True)
      faulthandler.dump_traceback(file)
    os._exit(os.EX_TEMPFAIL)

  def alive(phase: str):
    nonlocal timer, now
    now = phase
    if timer:
      timer.cancel()
    timer = threading.Timer(60 * minutes, end)
    timer.daemon = True
    timer.start()
    # A thread that never lets go of the interpreter stops the timer too, but not this.
    faulthandler.dump_traceback_later(60 * minutes + 60, exit=True, file=sys.__stderr__)

  alive(phase)
  _watched.append(alive)
  try:
    yield
  finally:
    _watched.remove(alive)
    timer.cancel()
    faulthandler.cancel_dump_traceback_later()
