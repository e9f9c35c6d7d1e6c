"""Checkpoints that storage has damaged, that are another run's, or that no disk has room for."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time

import jax
import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp
from toy_run import config, disturbed, files, flip, newest, rewrite, timeless

from grpojax import train
from grpojax.config import workdir as workdir_lib
from grpojax.runtime import checkpointer, loggers, metrics
from grpojax.tools import export
from grpojax.train import checkpoint

pytestmark = [
  pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # readers that gave up
  pytest.mark.usefixtures("quick_jobs"),
]


DAMAGE = {
  "one bit flipped": lambda step: rewrite(files(step, "*")[-1], flip),
  "truncated": lambda step: rewrite(files(step, "*")[-1], lambda data: data[: len(data) // 2]),
  "zeroed": lambda step: rewrite(files(step, "*")[-1], lambda data: bytes(len(data))),
  "a file is missing": lambda step: files(step, "*")[-1].unlink(),
  "metadata is garbage": lambda step: (step / "tree" / "_METADATA").write_text("{"),
  "no host state": lambda step: (step / "_CHECKPOINT_METADATA").write_text("{}"),
  "empty": lambda step: (shutil.rmtree(step), step.mkdir()),
}


OFTEN = ("one bit flipped",)


@pytest.mark.parametrize(
  "kind", [pytest.param(kind, marks=[] if kind in OFTEN else pytest.mark.slow) for kind in DAMAGE]
)
def test_the_one_before_a_damaged_one_is_taken(kind, run, capsys):
  workdir, job = run
  DAMAGE[kind](workdir / "checkpoints" / "4")
  _, host = newest(workdir, job)
  said = capsys.readouterr().out
  assert host["step"] == 2 and f"checkpoint 4 is damaged and now in {workdir / 'damaged'}: " in said
  assert [one.name for one in (workdir / "damaged").iterdir()] == ["4"]


@pytest.fixture
def ctrl_c_as_usual():
  """A shell's `&` has it ignored."""
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, before)


def swallow_ctrl_c(monkeypatch, then):
  """Lets a Ctrl-C come while arrays are read, and become what C++ and event loops make of it."""

  def load(*args, **kwargs):
    with contextlib.suppress(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGINT)
      time.sleep(10)  # until it is heard
    return then()

  monkeypatch.setattr(ocp.training.Checkpointer, "load_checkpointables", load)


def damaged():
  raise TypeError("object of type 'NoneType' has no len()")


@pytest.mark.parametrize("then", [damaged, lambda: {"tree": ({},)}])
def test_ctrl_c_while_one_is_read_damages_nothing(then, run, monkeypatch, ctrl_c_as_usual):
  """It was moved aside, and the run went on from the one before."""
  workdir, job = run
  swallow_ctrl_c(monkeypatch, then)
  with pytest.raises(KeyboardInterrupt):
    newest(workdir, job)
  with pytest.raises(KeyboardInterrupt):
    export.trained_params(workdir, job.model, job.mesh)
  assert not (workdir / "damaged").exists() and (workdir / "checkpoints" / "4").is_dir()
  assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_export_of_a_damaged_one_is_refused_in_one_sentence(run):
  workdir, job = run
  DAMAGE["truncated"](workdir / "checkpoints" / "4")
  with pytest.raises(ValueError, match=r"checkpoint 4 in --workdir=\S+ is damaged .*one before it\.$"):
    export.trained_params(workdir, job.model, job.mesh)


def test_a_bit_that_storage_gives_back_without_a_word_is_found_by_its_leaf(run, capsys):
  """The leaf is written anew with one bit changed, so that every file is sound; the digests are old."""
  workdir, job = run
  checkpoints = checkpointer.open_checkpoints(workdir, 3)
  (state, *others), host = checkpointer.latest(checkpoints, *checkpoint.tree_layout(job))
  kept = checkpoints.metadata(4).custom_metadata
  bits = np.asarray(state.params["embedding"]).view(np.uint32).copy()
  bits[5, 3] ^= 1
  params = state.params | {"embedding": jax.numpy.asarray(bits.view(np.float32))}
  tree = (state._replace(params=params), *others)
  kept = {"host": host | {"step": 5}, "digests": kept["digests"]}
  kept["sha256"] = checkpointer._digest(kept)
  checkpoints.save_checkpointables(5, {"tree": tree}, custom_metadata=kept)
  checkpoints.close()
  with pytest.raises(ValueError, match=r"checkpoint 5 .* is not what was saved: 0/params/embedding\."):
    export.trained_params(workdir, job.model, job.mesh)
  assert newest(workdir, job)[1]["step"] == 4
  assert "damaged: not what was saved: 0/params/embedding\n" in capsys.readouterr().out.replace(
    f" and now in {workdir / 'damaged'}", ""
  )


@pytest.mark.slow
def test_a_run_whose_last_checkpoint_is_damaged_ends_as_the_undisturbed_one(finished, run):
  """The steps after the one before are taken again, and their records replaced."""
  whole, job = finished
  workdir, _ = run
  DAMAGE["truncated"](workdir / "checkpoints" / "4")
  train.run(job._replace(workdir=workdir))
  assert timeless(whole) == timeless(workdir)
  trees = [newest(folder, job)[0] for folder in (whole, workdir)]
  jax.tree.map(np.testing.assert_array_equal, *trees)


def test_a_run_with_none_left_stops_and_does_not_begin_anew(run):
  workdir, job = run
  for step in ("2", "4"):
    DAMAGE["truncated"](workdir / "checkpoints" / step)
  for _ in range(2):  # neither now nor at the next start
    with pytest.raises(ValueError, match=r"every checkpoint is damaged \(they are in .*damaged\)"):
      newest(workdir, job)
  assert sorted(one.name for one in (workdir / "damaged").iterdir()) == ["2", "4"]


def test_a_checkpoint_of_another_model_or_optimiser_is_refused_and_left_alone(run, cache):
  workdir, _ = run
  (workdir / "config.json").unlink()  # which would have refused it before
  wide, alone = config(cache), config(cache)
  wide.model.intermediate_size = 96
  del alone.objective.penalty.kl
  alone.reference = ""
  wider = r"layers/gate: float32\[2, 32, 64\] -> float32\[2, 32, 96\]"
  for c, what in (wide, wider), (alone, r"1/reference/embedding: float32\[260, 32\] -> missing"):
    with pytest.raises(ValueError, match=rf"of another model, optimiser or objective \(.*{what}"):
      newest(workdir, train.prepare(c, workdir / "none"))
  assert not (workdir / "damaged").exists()


@pytest.fixture
def small_disk(tmp_path):
  """A file system of 3 MB, of which a tiny checkpoint takes under one."""
  disk = tmp_path / "disk"
  disk.mkdir()
  mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
  if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
    pytest.skip("needs the right to mount a tmpfs")
  yield disk
  subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_is_found_before_the_save_and_the_last_checkpoint_stays(finished, small_disk):
  _, job = finished
  checkpoints = checkpointer.open_checkpoints(small_disk / "run", 3)
  tree, host = newest(finished[0], job)
  checkpointer.save(checkpoints, 2, tree, host | {"step": 2})
  checkpointer.finish(checkpoints)
  free = shutil.disk_usage(small_disk).free
  (small_disk / "other").write_bytes(bytes(free - 50_000))
  with pytest.raises(OSError, match=r"run/checkpoints: 0.00 GB are free, and a checkpoint needs"):
    checkpointer.save(checkpoints, 4, tree, host)
  checkpoints.close()
  (small_disk / "other").unlink()
  assert newest(small_disk / "run", job)[1]["step"] == 2


def test_a_disk_that_fills_up_while_saving_is_an_error_of_the_disk(finished, small_disk, monkeypatch):
  _, job = finished
  monkeypatch.setattr(checkpointer.storage, "check_room", lambda *_: None)
  checkpoints = checkpointer.open_checkpoints(small_disk / "run", 3)
  tree, host = newest(finished[0], job)
  (small_disk / "other").write_bytes(bytes(shutil.disk_usage(small_disk).free - 100_000))
  with pytest.raises(OSError, match="checkpoints: a checkpoint could not be written"):
    checkpointer.save(checkpoints, 4, tree, host)
    checkpointer.finish(checkpoints)


def test_the_config_of_a_run_outlives_a_disk_that_was_full_at_a_start(small_disk, cache):
  c, workdir = config(cache), small_disk / "run"
  workdir_lib.claim(workdir, c)
  (small_disk / "other").write_bytes(bytes(shutil.disk_usage(small_disk).free))
  c.steps += 1
  with pytest.raises(OSError, match="No space left"):
    workdir_lib.claim(workdir, c)
  (small_disk / "other").unlink()
  assert json.loads((workdir / "config.json").read_text())["steps"] == c.steps - 1
  workdir_lib.claim(workdir, c)


@pytest.mark.parametrize("left", [0, 5000])
def test_records_for_which_there_is_no_room_are_an_error_and_nothing_waits(small_disk, left, monkeypatch):
  """Those of TensorBoard, when the file beside them still had its place."""
  about = loggers.Run("id", "toy", "tests", {}, small_disk / "run", 0)
  writer = metrics.Writer(small_disk / "run", 0, loggers.open_all("tensorboard", about, small_disk / "run"))
  monkeypatch.setattr(writer, "_append", lambda *_: None)
  (small_disk / "other").write_bytes(bytes(shutil.disk_usage(small_disk).free - left))
  many = {f"metric/{i}": 0.5 for i in range(50)}
  with pytest.raises(OSError, match="No space left"):
    for step in range(50):
      writer.write("train", step, many)
      writer.flush()


def test_a_folder_that_has_gone_is_an_error_of_the_disk(finished, tmp_path):
  _, job = finished
  tree, host = newest(finished[0], job)
  workdir = tmp_path / "run"
  checkpoints = checkpointer.open_checkpoints(workdir, 3)
  shutil.rmtree(workdir)
  with pytest.raises(OSError, match="checkpoints"):
    checkpointer.save(checkpoints, 2, tree, host)
    checkpointer.finish(checkpoints)


def test_a_save_that_cannot_begin_leaves_nobody_who_waits_for_it(finished, tmp_path, immutable):
  """Threads that wait keep a process that has said its error."""
  _, job = finished
  tree, host = newest(finished[0], job)
  checkpoints = checkpointer.open_checkpoints(tmp_path / "run", 3)
  checkpointer.save(checkpoints, 2, tree, host | {"step": 2})
  checkpointer.finish(checkpoints)
  before = {thread for thread in threading.enumerate() if not thread.daemon}
  immutable(tmp_path / "run")
  with pytest.raises(OSError, match=r"checkpoints: a checkpoint could not be written .*not permitted"):
    checkpointer.save(checkpoints, 4, tree, host)
    checkpointer.finish(checkpoints)
  for thread in {thread for thread in threading.enumerate() if not thread.daemon} - before:
    thread.join(10)
    assert not thread.is_alive(), thread


@pytest.fixture
def immutable():
  """immutable(folder): nothing in it can be made, changed or removed, not even by root."""
  held = []

  def hold(folder):
    while not (folder / "checkpoints" / "2").exists() and (folder / "checkpoints").exists():
      time.sleep(0.01)  # a save is under way
    if os.geteuid() or subprocess.run(["chattr", "-R", "+i", folder], capture_output=True).returncode:
      pytest.skip("needs chattr, and a file system that knows it")
    held.append(folder)

  yield hold
  for folder in held:
    subprocess.run(["chattr", "-R", "-i", folder], check=True)


@pytest.mark.slow
def test_a_folder_that_becomes_read_only_stops_the_run_and_it_goes_on(finished, tmp_path, immutable):
  whole, job = finished
  workdir = tmp_path / "run"
  with pytest.raises(OSError, match="not permitted"):
    disturbed(job, workdir, 3, immutable)
  subprocess.run(["chattr", "-R", "-i", workdir], check=True)
  assert newest(workdir, job)[1]["step"] == 2
  assert train.run(job._replace(workdir=workdir))
  assert timeless(whole) == timeless(workdir)
  jax.tree.map(np.testing.assert_array_equal, newest(whole, job)[0], newest(workdir, job)[0])


def test_a_folder_that_vanishes_stops_the_run_at_the_next_save(finished, tmp_path):
  _, job = finished
  with pytest.raises(OSError, match="run/checkpoints"):
    disturbed(job, tmp_path / "run", 2, shutil.rmtree)


def test_where_nothing_may_be_written_a_run_does_not_begin(cache, tmp_path, immutable):
  (tmp_path / "closed").mkdir()
  immutable(tmp_path / "closed")
  with pytest.raises(ValueError, match=r"--workdir=.*/closed/run cannot be made \(Operation not permitted"):
    train.run(train.prepare(config(cache), tmp_path / "closed" / "run"))
