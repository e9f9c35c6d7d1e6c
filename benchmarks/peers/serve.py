"""A system's side of the measurement: requests come on stdin, one JSON answer a line leaves on stdout.

    step N     N training steps of the system's own loop
    NAME 1     one call of what the system serves by that name

Standard library only.  What libraries print goes to stderr.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable

_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


class Gate:
  """Gate at the beginning of a training step: lets the requested number of steps pass, then answers.

  `calls`: name -> a function that does the work and returns how many tokens it sampled.  `settle`
  waits for everything that the system has dispatched; `versions` go with every answer.
  """

  def __init__(self, calls: dict[str, Callable[[], int]], settle: Callable[[], None], versions: dict):
    self.calls, self.settle, self.versions = calls, settle, versions
    self.left, self.began = 0, None

  def __call__(self) -> None:
    if self.left > 1:
      self.left -= 1
      return
    self.settle()
    if self.left:
      self._answer(0)
    for line in sys.stdin:
      name, count = line.split()
      self.began = _clocks()
      if name == "step":
        self.left = int(count)
        return
      self._answer(self.calls[name]())
    os._exit(0)  # the driver has gone; nothing here is worth saving

  def _answer(self, tokens: int) -> None:
    wall, cpu = (after - before for after, before in zip(_clocks(), self.began, strict=True))
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    answer = dict(
      wall=wall, cpu=cpu, tokens=tokens, rss_mb=rss_mb, versions=self.versions, at=time.perf_counter()
    )
    print(json.dumps(answer), file=_answers, flush=True)


def _clocks() -> tuple[float, float]:
  """Returns seconds of the wall, and of the CPU in all threads of this process."""
  return time.perf_counter(), time.process_time()
