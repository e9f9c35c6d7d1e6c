"""Starts of `grpojax pipeline`, one after another: each in a folder, up to a point where it SIGKILLs itself.

    python tests/tools/pipeline_killed.py "cut=answers:2 cut=batch:3 cut= whole=" PIPELINE [flags]

A point is the n-th entry of a phase; without one a start goes to its end.
"""

import os
import signal
import sys
from collections import Counter

from grpojax.config import commandline, recipe
from grpojax.runtime import checkpointer
from grpojax.tools.evaluate import items
from grpojax.tools.pipeline import command, manifest
from grpojax.train import preference, supervised, teacher

PHASES = {  # what is called when a phase is entered
  "begin": (manifest, "begin"),
  "finish": (manifest, "finish"),
  "answers": (items, "append"),
  "batch": (supervised, "batch_of"),
  "pairs": (preference, "batch_of"),
  "save": (checkpointer, "save"),
  "teacher": (teacher, "add_logprobs"),
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
  for start in sys.argv.pop(1).split():
    folder, point = start.split("=")
    if not (child := os.fork()):
      os.chdir(folder)
      if point:
        watch(point)
      commandline.run(command.main, recipe.PIPELINES)
    print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
