"""A process that has imported what every command imports, and forks for each one that a test starts.

A line of JSON on stdin is a list of [words, environment, stdout, stderr], run side by side; the line in
answer has their exit codes.  JAX starts no thread before its first use, so what is only imported can be
forked.
"""

import gc
import json
import os
import runpy
import sys

import contexts
import frames

import grpojax.__main__ as commands
import grpojax.runtime.loggers.tensorboard
import grpojax.runtime.report
import grpojax.tools.evaluate.benchmark
import grpojax.train.loop  # noqa: F401


def become(words: list[str], environment: dict[str, str], out: str, err: str) -> None:
  """Runs `python -m WORDS`, a command or a study, in this process, a fork."""
  os.environ.clear()
  os.environ.update(environment)
  sys.path[:0] = environment["PYTHONPATH"].split(os.pathsep)
  for number, path in (0, os.devnull), (1, out), (2, err):
    os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
  module, *flags = words
  sys.orig_argv = [sys.executable, "-m", *words]
  if not module.startswith("grpojax"):
    sys.argv = [module, *flags]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return
  sys.argv = ["grpojax", *(["train"] if module == "grpojax.main" else []), *flags]
  commands.main()


def answer(line: str) -> list[int]:
  """Exit codes of the commands; negative: the signal that ended one."""
  children = []
  for command in json.loads(line):
    if not (child := os.fork()):
      frames.with_room(become, *command)
      sys.exit()
    children.append(child)
  return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


contexts.share()  # as in conftest.py, and what follows
gc.freeze()
gc.set_threshold(20_000, 20, 20)
for line in sys.stdin:
  print(json.dumps(answer(line)), flush=True)
