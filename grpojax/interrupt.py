"""Ctrl-C (SIGINT) and SIGTERM ask the loop to stop after the step it is in."""

import signal

from grpojax import console


class Interrupt:
  """`with Interrupt() as interrupt: ... if interrupt.asked: save and leave`.

  A second signal acts as usual, for whoever cannot wait.
  """

  SIGNALS = (signal.SIGINT, signal.SIGTERM)

  def __init__(self):
    self.asked = False

  def __enter__(self):
    self.before = {s: signal.signal(s, self._ask) for s in self.SIGNALS}
    return self

  def _ask(self, number, frame):
    self.asked = True
    self._restore()
    console.say("Stopping after this step; once more to stop at once.")

  def _restore(self):
    for number, handler in self.before.items():
      signal.signal(number, handler)

  def __exit__(self, *_):
    self._restore()
