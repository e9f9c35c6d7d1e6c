"""`grpojax.main` that SIGKILLs itself: so many seconds after its n-th entry of a phase,
in the middle of whatever comes then.

    python -m benchmarks.endurance.killed PHASE:ENTRY:SECONDS --config=... --workdir=...
"""

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from grpojax import main
from grpojax.config import commandline
from grpojax.data import pipeline
from grpojax.rollout import generate, prefetch
from grpojax.runtime import checkpointer
from grpojax.train import cold_start, session


def watch(enters: Callable[[str], None]) -> None:
  """Calls `enters(phase)` whenever the run enters a phase.

  The phases are "cold start", "epoch edge", "rollout", "refill", "save", "commit" (of a checkpoint) and
  "evaluation".
  """
  collecting = []

  def before(place, name: str, note: Callable) -> None:
    fn = getattr(place, name)

    def noted(*args, **kwargs):
      note(*args)
      return fn(*args, **kwargs)

    setattr(place, name, noted)

  def drawn(stream, *_):
    batches = len(stream._split.records) // len(stream[0].id)  # of an epoch
    if collecting:
      enters("refill")
    if stream.position and stream.position % batches == 0:
      enters("epoch edge")

  def collect(*args):
    collecting.append(True)
    try:
      return collects(*args)
    finally:
      collecting.clear()

  collects, prefetch._collect = prefetch._collect, collect
  before(pipeline.Stream, "next", drawn)
  before(cold_start, "cold_start", lambda *_: enters("cold start"))
  before(generate, "start", lambda *_: enters("rollout"))
  before(checkpointer, "save", lambda *_: enters("save"))
  before(os, "rename", lambda old, new: "orbax-checkpoint-tmp" in str(old) and enters("commit"))
  before(session, "evaluate", lambda *_: enters("evaluation"))


def killer(point: str) -> Callable[[str], None]:
  """Returns the function to give to `watch`; `point` is PHASE:ENTRY:SECONDS."""
  phase, entry, seconds = point.split(":")
  entries = Counter()

  def end():
    time.sleep(float(seconds))
    os.kill(os.getpid(), signal.SIGKILL)

  def enters(entered: str) -> None:
    entries[entered] += 1
    if entered == phase and entries[phase] == int(entry):
      threading.Thread(target=end, daemon=True).start() if float(seconds) else end()

  return enters


if __name__ == "__main__":
  watch(killer(sys.argv.pop(1)))
  commandline.run(main.main)
