"""Runs inside the sandbox, by the system's Python (3.8 or newer): a program, on each input in turn.

stdin: JSON with program, inputs, fn_name (or null) and cpu_seconds.  stdout: a line "ready", then a line
of JSON for each input: what the program printed, or the JSON of what the function returned, as text.
null stands for a crash, and nothing follows it.

No expected output ever enters the sandbox.  So it does not matter what a program does to this process or to
its stdout: only the right outputs pass.
"""

import json
import os
import resource
import sys

PROCESSES = 8  # at once: bubblewrap, this one, the program, and five threads or children of its own
PRELUDE = """
import bisect, collections, functools, heapq, itertools, math, re, string
from typing import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
"""  # what starter code with a bare `List[int]` takes for granted


def main():
  job = json.load(sys.stdin)
  resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
  results = os.dup(1)
  os.write(results, b"ready\n")
  scope = {"__name__": "__main__"}
  if job["fn_name"]:
    scope = {"__name__": "program"}
    exec(PRELUDE, scope)
  for given in job["inputs"]:
    output = output_for(given, job, scope, results)
    os.write(results, json.dumps(output).encode() + b"\n")
    if output is None or sum(os.times()[2:4]) > job["cpu_seconds"]:
      return


def output_for(given, job, scope, results):
  """Returns the output for one input, of a child process: one input's memory is not the next one's."""
  output = os.memfd_create("output")
  child = os.fork()
  if child == 0:
    os.close(results)
    run_program(job["program"], given, job["fn_name"], scope, output)
    sys.exit()  # as a program ends: threads joined, buffers flushed, exit handlers run
  ended_well = os.waitpid(child, 0)[1] == 0
  os.lseek(output, 0, os.SEEK_SET)
  with os.fdopen(output, "rb") as file:
    return file.read().decode("utf-8", "replace") if ended_well else None


def run_program(program, given, fn_name, scope, output):
  """Writes to `output` what a program prints, or what a function returns without its prints."""
  nowhere = os.open(os.devnull, os.O_RDWR)
  stdin, stdout = nowhere, nowhere
  if not fn_name:
    stdin, stdout = os.memfd_create("given"), output
    os.write(stdin, given.encode())
    os.lseek(stdin, 0, os.SEEK_SET)
  for target, fd in enumerate([stdin, stdout, nowhere]):
    os.dup2(fd, target)
  sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
  sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
  exec(compile(program, "<program>", "exec"), scope)
  if fn_name:
    fn = scope[fn_name] if fn_name in scope else getattr(scope["Solution"](), fn_name)
    os.write(output, json.dumps(fn(*given)).encode())


if __name__ == "__main__":
  main()
