"""Runs one run after another in this process, which imports and compiles once for all of them.

A line of JSON on standard input is a run, {"flags": [...], "workdir": ..., "log": ...}; the line in answer is
its exit status, as `python -m grpojax.main` has it.  Whatever a run prints goes to the end of its log.
"""

import json
import os
import sys
from pathlib import Path

from grpojax import train
from grpojax.config import commandline
from grpojax.runtime import console, errors, garbage
from grpojax.tools.pipeline import chain as chain_lib
from grpojax.tools.pipeline import stages
from grpojax.tools.study import chains
from grpojax.train import shared


def main() -> None:
  """Answers line by line; ends with a run that was asked to stop, and has saved."""
  garbage.collect_rarely()
  answers = os.fdopen(os.dup(1), "w")  # before standard output is a run's log
  share = shared.sharing({})
  for line in sys.stdin:
    asked = json.loads(line)
    print_to(asked["log"])
    status = status_of(lambda asked=asked: run(asked["flags"], asked["workdir"], share))
    sys.stdout.flush()
    print(status, file=answers, flush=True)
    if status == os.EX_TEMPFAIL:
      sys.exit(status)


def print_to(log: str) -> None:
  """Makes standard output and error, of this process and of those that it starts, go to the end of a file."""
  file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
  for number in (1, 2):
    os.dup2(file, number)
  os.close(file)


def run(flags: list[str], workdir: str, share) -> None:
  """Trains as `grpojax train` does with these flags, or runs what is left of a pipeline."""
  config, notes = commandline.settled(flags)
  commandline.set_up_process(config, stages.check_keys_of)
  for note in notes:
    console.say(f"note: {note}.")
  console.say_once.cache_clear()  # once a run
  if chains.is_chain(config):
    chain = chain_lib.find(config, Path(workdir))
    errors.to_the_end(workdir, lambda: chain_lib.run(chain, chain_lib.choose(chain, "", ""), share))
    return
  job = train.prepare(config, workdir, share=share)
  errors.to_the_end(workdir, lambda: train.run(job))


def status_of(run) -> int:
  """Calls `run`, and returns the exit status of a process that does nothing else; prints its last words."""
  try:
    errors.guarded(run)()
  except SystemExit as end:
    if isinstance(end.code, str):
      print(end.code, file=sys.stderr, flush=True)
      return 1
    return end.code or 0
  return 0


if __name__ == "__main__":
  main()
