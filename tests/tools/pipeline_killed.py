"""`grpojax pipeline` that SIGKILLs itself at the n-th entry of a phase, once for each point; then to its end.

    python tests/tools/pipeline_killed.py "answers:2 batch:3 ..." PIPELINE --workdir=... [flags]
"""

import os
import signal
import sys
from collections import Counter

from grpojax.config import commandline, recipe
from grpojax.runtime import checkpointer
from grpojax.tools.evaluate import items
from grpojax.tools.pipeline import command, manifest
from grpojax.train import supervised

PHASES = {  # what is called when a phase is entered
  "begin": (manifest, "begin"),
  "finish": (manifest, "finish"),
  "answers": (items, "append"),
  "batch": (supervised, "batch_of"),
  "save": (checkpointer, "save"),
}


def watch(point: str) -> None:
  """Ends this process at the point."""
  wanted, number = point.split(":")
  entries = Counter()

  def entering(name, fn):
    def noted(*args, **kwargs):
      entries[name] += 1
      if name == wanted and entries[name] == int(number):
        os.kill(os.getpid(), signal.SIGKILL)
      return fn(*args, **kwargs)

    return noted

  for name, (module, fn) in PHASES.items():
    setattr(module, fn, entering(name, getattr(module, fn)))


if __name__ == "__main__":
  for point in [*sys.argv.pop(1).split(), ""]:
    if not (child := os.fork()):
      if point:
        watch(point)
      commandline.run(command.main, recipe.PIPELINES)
    print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
