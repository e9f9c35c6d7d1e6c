"""Runs inside the sandbox, by the system's Python (3.8 or newer): a program, on each input in turn.

stdin: JSON with program, inputs, fn_name (or null) and cpu_seconds.  stderr: "ready", once the program may
run.  stdout: a line of JSON for each input: what the program printed, or the JSON of what the function
returned, as text.  null stands for a crash, and nothing follows it.

No expected output ever enters the sandbox.  So it does not matter what a program does to this process or to
its stdout: only the right outputs pass.  This process is the first of its PID namespace, so that no signal of
the program ends it, and not dumpable, so that its files in /proc are closed to the program.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import tempfile

PROCESSES = 8  # at once: bubblewrap, this one, the program, and five threads or children of its own
PR_SET_DUMPABLE = 4
FALLOC_FL_KEEP_SIZE = 1
LIBC = ctypes.CDLL(None)
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
  if LIBC.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
    return  # not ready
  resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
  results = os.dup(1)
  os.write(2, b"ready")
  os.dup2(os.open(os.devnull, os.O_RDWR), 2)
  scope = {"__name__": "__main__"}
  if job["fn_name"]:
    scope = {"__name__": "program"}
    exec(PRELUDE, scope)
  for given in job["inputs"]:
    output = output_for(given, job, scope, results)
    end_all()
    os.write(results, json.dumps(output).encode() + b"\n")
    if output is None or sum(os.times()[2:4]) > job["cpu_seconds"]:
      return


def output_for(given, job, scope, results):
  """Returns the output for one input, of a child process: one input's memory is not the next one's."""
  output = nameless()
  room = resource.getrlimit(resource.RLIMIT_FSIZE)[0]  # also where the program fills /tmp
  LIBC.fallocate(output, FALLOC_FL_KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(room))
  child = os.fork()
  if child == 0:
    os.close(results)
    run_program(job["program"], given, job["fn_name"], scope, output)
    sys.exit()  # as a program ends: threads joined, buffers flushed, exit handlers run
  ended_well = os.waitpid(child, 0)[1] == 0
  os.lseek(output, 0, os.SEEK_SET)
  with os.fdopen(output, "rb") as file:
    return file.read().decode("utf-8", "replace") if ended_well else None


def end_all():
  """Kills and reaps what the program has left running: the next input meets nobody."""
  try:
    os.kill(-1, signal.SIGKILL)  # all but this process, as it is the first of its namespace
    while True:
      os.waitpid(-1, 0)
  except OSError:  # there are none
    pass


def nameless():
  """Returns a descriptor of a file without a name, in memory that counts as /tmp's."""
  with tempfile.TemporaryFile(dir="/tmp") as file:
    return os.dup(file.fileno())


def run_program(program, given, fn_name, scope, output):
  """Writes to `output` what a program prints, or what a function returns without its prints."""
  nowhere = os.open(os.devnull, os.O_RDWR)
  stdin, stdout = nowhere, nowhere
  if not fn_name:
    stdin, stdout = nameless(), output
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
