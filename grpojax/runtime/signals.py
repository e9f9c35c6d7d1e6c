"""Ctrl-C (SIGINT), SIGTERM and a closing terminal (SIGHUP) ask the loop to stop after the step it is in.

Outside of the loop they act as usual; `heard` sees to it that a Ctrl-C does where files are read.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

import jax

USUAL = {
  signal.SIGINT: signal.default_int_handler,
  signal.SIGTERM: signal.SIG_DFL,
  signal.SIGHUP: signal.SIG_DFL,
}


@contextlib.contextmanager
def heard() -> Iterator[None]:
  """Raises KeyboardInterrupt behind the block if a Ctrl-C came in it, whatever became of it there.

  C++ and event loops turn a KeyboardInterrupt into another error, or into none, and what was being read then
  looks damaged.  Acts where Ctrl-C does as usual.
  """
  came, usual = [], signal.default_int_handler

  def note(number, frame):
    came.append(number)
    usual(number, frame)

  main = threading.current_thread() is threading.main_thread()
  if not main or signal.getsignal(signal.SIGINT) is not usual:
    yield
    return
  signal.signal(signal.SIGINT, note)
  try:
    yield
  finally:
    signal.signal(signal.SIGINT, usual)
    if came:
      raise KeyboardInterrupt


class Interrupt:
  """State of a request to stop: `with Interrupt() as interrupt: ... if interrupt.asked: save and leave`.

  A second signal acts as usual and ends the run at once; also where a shell had the signal ignored, as
  SIGINT is in what a script starts with `&`.  But under nohup a SIGHUP stays ignored; and in a thread beside
  the main one, which alone hears signals, nobody asks.
  """

  def __init__(self, waits_for: Callable[[], str] = lambda: "Stopping; once more to stop at once."):
    """`waits_for` gives what the person is told, who may have to wait for minutes."""
    self.asked, self.waits_for = False, waits_for
    self.speaks = jax.process_index() == 0

  def __enter__(self):
    nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    hears = threading.current_thread() is threading.main_thread()
    taken = [s for s in USUAL if hears and not (s == signal.SIGHUP and nohup)]
    self.before = {s: signal.signal(s, self._ask) for s in taken}
    return self

  def _ask(self, number, frame):
    self.asked = True
    for number, before in self.before.items():
      signal.signal(number, USUAL[number] if before == signal.SIG_IGN else before)
    if self.speaks:  # not by print: a handler may interrupt one, and Python 3.11 then writes other memory
      os.write(2, f"\n{self.waits_for()}\n".encode())

  def __exit__(self, *_):
    for number, handler in self.before.items():
      signal.signal(number, handler)
