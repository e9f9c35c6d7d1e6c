"""What a person or a launcher sends twice, or at an awkward moment."""

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import subprocesses

from grpojax import train
from grpojax.runtime import checkpointer, metrics
from grpojax.runtime.signals import Interrupt
from grpojax.train import checkpoint

pytestmark = pytest.mark.usefixtures("quick_jobs")
ROOT = Path(__file__).parents[2]


def config(cache, **changes):
  c = importlib.import_module("grpojax.recipes.dr_grpo").get_config("tiny")
  c.update(verbose=False, cache_dir=str(cache), **changes)
  c.model.num_hidden_layers, c.rollout.max_tokens, c.eval.prompts = 1, 16, 4
  c.mesh.data = 1
  c.reward.accuracy = dict(fn=f"{__name__}:short")
  return c


def short(sample):
  return float(sample.length < 10)


def grades_for_ever(sample, *, after):
  """From its so many-th completion on."""
  GRADED.append(sample)
  if len(GRADED) > after:
    print("grading for ever", flush=True)
    time.sleep(60)
  return short(sample)


GRADED = []


@pytest.mark.slow
def test_a_signal_while_the_last_checkpoint_is_written_does_not_lose_it(cache, tmp_path, monkeypatch):
  written = []

  def finish(checkpoints):
    written.append(checkpoints)
    if len(written) == 2:  # the first is before the save; the second waits for it
      os.kill(os.getpid(), signal.SIGINT)
    waits(checkpoints)

  waits = checkpointer.finish
  monkeypatch.setattr(checkpointer, "finish", finish)
  assert train.run(train.prepare(config(cache, steps=1), tmp_path / "run"))
  assert len(written) > 1 and checkpointer.steps(tmp_path / "run") == [1]


def test_a_second_ctrl_c_counts_also_where_a_shell_had_it_ignored():
  before = signal.signal(signal.SIGINT, signal.SIG_IGN)
  try:
    with Interrupt() as interrupt:
      signal.raise_signal(signal.SIGINT)
      assert interrupt.asked
      with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
  finally:
    signal.signal(signal.SIGINT, before)


def test_a_terminal_that_closes_asks_for_a_stop_but_not_under_nohup():
  before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may themselves run under nohup
  try:
    with Interrupt() as interrupt:
      signal.raise_signal(signal.SIGHUP)
      assert interrupt.asked
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interrupt() as interrupt:
      signal.raise_signal(signal.SIGHUP)
      assert not interrupt.asked
  finally:
    signal.signal(signal.SIGHUP, before)


def test_in_a_thread_nobody_asks_and_the_run_goes_on():
  """Python sets handlers in the main thread alone."""
  asked = []

  def run():
    with Interrupt() as interrupt:
      asked.append(interrupt.asked)

  thread = threading.Thread(target=run)
  thread.start()
  thread.join()
  assert asked == [False]


def test_a_signal_during_a_print_writes_beside_it(capfd, monkeypatch):
  """Python 3.11's own print, called by a handler while another one writes, sends what else is in memory."""
  monkeypatch.setattr(sys, "stdout", None)
  with Interrupt(lambda: "Stopping after step 3") as interrupt:
    signal.raise_signal(signal.SIGTERM)
  assert interrupt.asked and "Stopping after step 3" in capfd.readouterr().err


@pytest.mark.slow
def test_a_second_ctrl_c_ends_at_once_and_damages_nothing(cache, tmp_path):
  """In a step that would take a quarter of an hour."""
  c = config(cache)
  for_ever = {"fn": f"{__name__}:grades_for_ever", "after": c.eval.prompts * c.eval.samples + 2 * 16}
  flags = {"steps": 9, "eval.every": 9, "reward.accuracy": for_ever}
  flags |= {key: c[key] for key in ("cache_dir", "verbose")}
  flags |= {"model.num_hidden_layers": 1, "rollout.max_tokens": 16, "eval.prompts": c.eval.prompts}
  run = [
    sys.executable, "-m", "grpojax.main", "--config=configs/dr_grpo.py:tiny", f"--workdir={tmp_path / 'run'}",
    *(f"--config.{key}={value}" for key, value in flags.items()),
  ]  # fmt: skip
  env = subprocesses.environment(PYTHONFAULTHANDLER="1")
  env["PYTHONPATH"] += f"{os.pathsep}{Path(__file__).parent}"
  pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  process = subprocess.Popen(run, cwd=ROOT, env=env, **pipes)
  awaited_of = {"grading for ever": process.stdout, "Stopping after step 3: waiting": process.stderr}
  for awaited, pipe in awaited_of.items():
    said = iter(pipe.readline, "")
    assert any(awaited in line for line in said), process.stderr.read()
    end = time.monotonic() + 30
    while "Stopping" in awaited and not (tmp_path / "run" / "checkpoints" / "2").exists():
      assert time.monotonic() < end  # its save goes on while the third step does not end
      time.sleep(0.1)
    process.send_signal(signal.SIGINT)
  try:
    _, error = process.communicate(timeout=50)
  except subprocess.TimeoutExpired:
    process.send_signal(signal.SIGABRT)
    pytest.fail(f"it goes on, here: {process.communicate()[1]}")
  assert process.returncode == 1 and "Traceback" not in error
  assert error.startswith("Interrupted; the same command goes on from the last checkpoint"), error
  job = train.prepare(config(cache), tmp_path / "other")
  checkpoints = checkpointer.open_checkpoints(tmp_path / "run", 2)
  tree, host = checkpointer.latest(checkpoints, *checkpoint.tree_layout(job))
  checkpoints.close()
  assert host["step"] == 2
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(tree))
  assert [r["step"] for r in metrics.read(tmp_path / "run") if r["kind"] == "train"] == [1, 2]
