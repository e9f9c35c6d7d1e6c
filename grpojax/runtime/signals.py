"""Ctrl-C (SIGINT), SIGTERM and a closing terminal (SIGHUP) ask the loop to stop after the step it is in."""

import os
import signal
import threading
from collections.abc import Callable

import jax

USUAL = {
  signal.SIGINT: signal.default_int_handler,
  signal.SIGTERM: signal.SIG_DFL,
  signal.SIGHUP: signal.SIG_DFL,
}


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
    heard = [s for s in USUAL if hears and not (s == signal.SIGHUP and nohup)]
    self.before = {s: signal.signal(s, self._ask) for s in heard}
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
