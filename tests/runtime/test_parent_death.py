"""Servers and workers die with a run; the run itself does not die with the shell that started it."""

import subprocess
import sys

import pytest
import subprocesses

ON_PARENT_DEATH = """
import ctypes
import sys
import grpojax.main, grpojax.rewards.pool, grpojax.rollout.envs.pool, grpojax.tools.study.worker

found = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(found))  # PR_GET_PDEATHSIG
sys.exit(found.value)
"""
SHELL = """
import os, sys, time
from grpojax.runtime import parent_death

parent = os.getpid()
if not os.fork():
  if {tied}:
    parent_death.die_with_parent()
  print("ready", flush=True)
  while os.getppid() == parent:
    time.sleep(0.01)
  time.sleep(0.1)  # for the kernel's signal
  print("alive", flush=True)
  os._exit(0)
sys.stdin.readline()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's prctl")


def test_who_starts_a_run_may_end_before_it():
  """As a shell that somebody leaves, under nohup: whatever a run imports, no signal is set for that."""
  done = subprocess.run([sys.executable, "-c", ON_PARENT_DEATH], env=subprocesses.environment())
  assert done.returncode == 0


@pytest.mark.parametrize("tied", [True, False])
def test_who_is_tied_dies_with_its_parent(tied):
  shell = subprocess.Popen(
    [sys.executable, "-c", SHELL.format(tied=tied)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
  )
  assert shell.stdout.readline() == "ready\n"
  said, _ = shell.communicate("end\n")
  assert said == ("" if tied else "alive\n")
