"""A process that hangs ends in bounded time and says where it hung; one that works is left alone."""

import contextlib
import importlib
import os
import subprocess
import sys
import threading

import pytest

from grpojax import train
from grpojax.runtime.watchdog import watchdog
from grpojax.train import session

HANGS = """
import sys, threading, time
from pathlib import Path
from grpojax.runtime.watchdog import watchdog

def waits_for_a_peer():
  threading.Event().wait()

with watchdog(1 / 60, Path(sys.argv[1])) as alive:
  for _ in range(8):
    time.sleep(0.25)
    alive()
  print("alive so far", flush=True)
  waits_for_a_peer()
"""


def test_a_process_that_hangs_says_where_and_asks_to_be_started_again(tmp_path):
  stacks = tmp_path / "stacks.txt"
  done = subprocess.run(
    [sys.executable, "-c", HANGS, str(stacks)], capture_output=True, text=True, timeout=120
  )
  assert done.returncode == os.EX_TEMPFAIL and "alive so far" in done.stdout
  for said in (stacks.read_text(), done.stderr):
    assert "no progress for 0.0166667 minutes" in said and "waits_for_a_peer" in said


def test_nothing_is_left_behind_by_a_run_that_ends(tmp_path):
  before = threading.active_count()
  with watchdog(1 / 600, tmp_path / "stacks.txt") as alive:
    alive()
  threading.Event().wait(0.3)
  assert not (tmp_path / "stacks.txt").exists() and threading.active_count() == before
  with watchdog(0, tmp_path / "stacks.txt") as alive:
    alive()
    assert threading.active_count() == before


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
def test_every_step_and_evaluation_is_progress(cache, tmp_path, monkeypatch):
  config = importlib.import_module("configs.dr_grpo").get_config("tiny")
  config.update(steps=3, verbose=False, cache_dir=str(cache))
  config.eval.every = 2
  config.mesh.data = 1
  calls = []

  @contextlib.contextmanager
  def counted(minutes, stacks):
    assert (minutes, stacks) == (config.guard.minutes, tmp_path / "run" / "stacks_0.txt")
    yield lambda: calls.append(1)

  monkeypatch.setattr(session, "watchdog", counted)
  train.run(train.prepare(config, tmp_path / "run"))
  assert len(calls) == 3 + 2  # steps; evaluations after 2 and 3
