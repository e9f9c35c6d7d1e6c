"""Runs grpojax COMMAND ..., the same as python -m grpojax COMMAND ...; each COMMAND has its own --help.

A command's module is imported when it is called: a start costs what that command needs, and no more.
"""

import importlib
import os
import sys

from grpojax.runtime import errors, garbage

COMMANDS = {  # name -> (module with a function `command()`, one line)
  "train": ("grpojax.main", "train a policy by a recipe of configs/"),
  "sft": ("grpojax.tools.sft", "fine-tune on conversations or demonstrations"),
  "pipeline": ("grpojax.tools.pipeline.command", "run stages of training that start from each other"),
  "evaluate": ("grpojax.tools.evaluate.command", "measure a checkpoint or a folder on held-out questions"),
  "export": ("grpojax.tools.export", "write a run's policy as a folder in Hugging Face's layout"),
  "podcheck": ("grpojax.tools.podcheck.command", "compile a run for a slice that is not here"),
  "sweep": ("grpojax.tools.sweep", "run any recipe with each override of a list, and compare"),
  "scale": ("grpojax.tools.scale.command", "fit accuracy against compute, and predict the end from half"),
  "report": ("grpojax.tools.report", "write a run's report.html anew"),
  "watch": ("grpojax.tools.watch", "show runs as they go, in a browser of this machine"),
  "port": ("grpojax.tools.port.command", "say a config of TRL, verl, slime or Tunix in our flags"),
  "variants": ("grpojax.tools.variants", "print every recipe by slot, and the functions of every slot"),
}


def main() -> None:
  """Runs the command that the first argument names."""
  errors.command(_run)


def _run() -> None:
  sys.path.append(os.getcwd())  # a user's own my.module:function, which `python -m` finds by itself
  name = sys.argv[1] if len(sys.argv) > 1 else ""
  if name in ("-h", "--help"):
    print(usage())
    return
  if name not in COMMANDS:
    said = f"grpojax has no command {name!r}" if name else "grpojax needs a command"
    sys.exit(f"error: {said}.\n\n{usage()}")
  sys.argv = [f"grpojax {name}", *sys.argv[2:]]
  module = importlib.import_module(COMMANDS[name][0])
  garbage.collect_rarely()  # what was imported
  module.command()


def usage() -> str:
  """Returns the commands, one a line."""
  lines = (f"  {name:10}{purpose}" for name, (_, purpose) in COMMANDS.items())
  last = "grpojax COMMAND --help has its flags; with --debug an error shows its trace."
  return "\n".join(["usage: grpojax COMMAND ...", "", *lines, "", last])


if __name__ == "__main__":
  main()
