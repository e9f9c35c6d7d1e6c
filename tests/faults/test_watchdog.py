"""A process that hangs ends in bounded time and says where it hung; one that works is left alone."""

import contextlib
import importlib
import os
import subprocess
import sys
import threading

import pytest

from grpojax import train
from grpojax.runtime import limits
from grpojax.runtime import watchdog as watchdog_lib
from grpojax.runtime.watchdog import progress, watchdog
from grpojax.train import session, setup

HANGS = """
import sys, threading, time
from pathlib import Path
from grpojax.runtime.watchdog import progress, watchdog

def waits_for_a_peer():
  threading.Event().wait()

with watchdog(1 / 60, "waiting", Path(sys.argv[1])):
  for _ in range(8):
    time.sleep(0.25)
    progress("waiting")
  print("alive so far", flush=True)
  waits_for_a_peer()
"""

NEVER_READ = """
import sys, threading
from pathlib import Path
import jax
from grpojax.recipes import base
from grpojax import train
from grpojax.train import setup

def waits_for_the_data(*_):
  threading.Event().wait()

setup.load_data = waits_for_the_data
config = base.get_config("tiny")
config.guard.minutes, config.mesh.data = 1 / 20, 1
jax.devices()  # which may take a second, in which nothing else goes on
train.prepare(config, Path(sys.argv[1]))
"""


def test_a_process_that_hangs_says_where_and_asks_to_be_started_again(tmp_path):
  stacks = tmp_path / "stacks.txt"
  done = subprocess.run(
    [sys.executable, "-c", HANGS, str(stacks)], capture_output=True, text=True, timeout=120
  )
  assert done.returncode == os.EX_TEMPFAIL and "alive so far" in done.stdout
  for said in (stacks.read_text(), done.stderr):
    assert "no progress for 0.0166667 minutes (config.guard.minutes) while waiting" in said
    assert "waits_for_a_peer" in said


def test_nothing_is_left_behind_by_a_run_that_ends(tmp_path):
  before = threading.active_count()
  with watchdog(1 / 600, "waiting", tmp_path / "stacks.txt"):
    progress("waiting")
  threading.Event().wait(0.3)
  assert not (tmp_path / "stacks.txt").exists() and threading.active_count() == before
  with watchdog(0, "waiting", tmp_path / "stacks.txt"):
    progress("waiting")
    assert threading.active_count() == before


@pytest.mark.usefixtures("quick_jobs")
def test_every_phase_from_the_first_second_is_watched(cache, tmp_path, monkeypatch):
  config = importlib.import_module("grpojax.recipes.dr_grpo").get_config("tiny")
  config.update(steps=3, verbose=False, cache_dir=str(cache))
  config.eval.every = 2
  config.mesh.data = 1
  opened, seen = [], []

  @contextlib.contextmanager
  def counted(minutes, phase, stacks=None):
    opened.append((minutes, phase, stacks))
    watchdog_lib._watched.append(seen.append)
    yield
    watchdog_lib._watched.remove(seen.append)

  for module in (setup.watchdog, session):
    monkeypatch.setattr(module, "watchdog", counted)
  train.run(train.prepare(config, tmp_path / "run"))
  minutes = config.guard.minutes
  assert opened == [
    (minutes, "reading the data", None),
    (minutes, "reading a checkpoint", tmp_path / "run" / "stacks_0.txt"),
  ]
  steps = [f"taking step {step}" for step in (1, 2, 3)]
  assert [phase for phase in seen if phase in steps] == steps
  assert {"preparing the model and its programs", "making the initial policy"} <= {*seen}
  evaluations = [f"evaluating after step {step}" for step in (0, 2, 3)]
  assert [phase for phase in seen if "evaluating" in phase] == evaluations


@pytest.mark.slow
def test_data_that_is_never_read_ends_the_process_with_its_phase(tmp_path):
  """Not only the loop: here the reader of the data waits for ever."""
  done = subprocess.run(
    [sys.executable, "-c", NEVER_READ, str(tmp_path)], capture_output=True, text=True, timeout=120
  )
  assert done.returncode == os.EX_TEMPFAIL, done.stderr
  assert "(config.guard.minutes) while reading the data; all threads:" in done.stderr
  assert "waits_for_the_data" in done.stderr


def test_an_address_space_in_which_threads_cannot_start_is_refused(monkeypatch):
  monkeypatch.setattr(limits.resource, "getrlimit", lambda which: (2 * 10**9, 2 * 10**9))
  with pytest.raises(ValueError, match=r"limited to 2 GB \(ulimit -v\), and JAX needs 8 GB"):
    limits.check()
