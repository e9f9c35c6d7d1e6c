"""Starts of a run as forks of one process, which has imported all and has not used JAX yet."""

import json
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.setting import ROOT

LIMIT = 300  # seconds of a start; one that takes longer hangs, and is aborted with its stacks
DRIVER = """
import faulthandler, importlib, json, os, signal, sys, time
from benchmarks.endurance.killed import commandline, main

def ended(child, limit):
  end = time.monotonic() + limit
  while not (found := os.waitpid(child, os.WNOHANG))[0]:
    if time.monotonic() > end:
      os.kill(child, signal.SIGABRT)
      end += 60
    time.sleep(0.01)
  return os.waitstatus_to_exitcode(found[1])

for line in sys.stdin:
  flags, before, argument, limit = json.loads(line)
  if not (child := os.fork()):
    faulthandler.enable()
    sys.argv = ["grpojax", *flags]
    if before:
      module, _, name = before.partition(":")
      getattr(importlib.import_module(module), name)(argument)
    commandline.run(main.main)
  print("\\nended", ended(child, limit), flush=True)
"""


class Driver:
  """The process that forks; `environment` is more of its own."""

  def __init__(self, environment: dict[str, str]):
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    env = environment | {"PYTHONPATH": str(ROOT)}
    self.process = subprocess.Popen(
      [sys.executable, "-c", DRIVER], cwd=ROOT, env=env, errors="replace", **pipes
    )

  def start(self, flags: list[str], before: str = "", argument=None) -> tuple[int, str]:
    """Starts `python -m grpojax.main *flags`; returns its status and its words.

    The process calls the function `before`, "module:name", with the argument, and then runs.
    """
    print(json.dumps([flags, before, argument, LIMIT]), file=self.process.stdin, flush=True)
    said = []
    for line in self.process.stdout:
      if ended := re.fullmatch(r"ended (-?\d+)\n", line):
        return int(ended[1]), "".join(said)
      said.append(line)
    raise RuntimeError(f"the driver has ended: {''.join(said)[-3000:]}")


def refused(status: int, said: str) -> bool:
  """Returns True for a start that ended with status 1 and one sentence."""
  return status == 1 and len(re.findall(r"^error: ", said, re.MULTILINE)) == 1 and "Traceback" not in said


def flags_of(config: str, workdir: Path, cache: Path, **values) -> list[str]:
  """Returns the flags of a run; `values` are those of config keys, with __ for a dot."""
  keys = [f"--config.{key.replace('__', '.')}={value}" for key, value in values.items()]
  return [f"--config={config}", f"--workdir={workdir}", f"--config.cache_dir={cache}", *keys]
