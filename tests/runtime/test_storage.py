"""Runs, models and data in a bucket: against an emulator of Google Cloud Storage on this machine."""

import contextlib
import importlib.util
import shutil
import socket
import sys
import types

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from etils import epath
from test_train import comparable, tiny

from grpojax import train
from grpojax.data.local import files as data_files
from grpojax.runtime import checkpointer, fetch, metrics, storage
from grpojax.runtime.loggers.feed import Feed
from grpojax.tools import export
from grpojax.tools import report as report_command

MISSING = [name for name in ("gcsfs", "gcp_storage_emulator") if importlib.util.find_spec(name) is None]


@pytest.fixture(scope="module")
def bucket():
  """gs://bucket, for gcsfs and for TensorStore."""
  if MISSING:
    pytest.skip(f"needs {' and '.join(MISSING)}: pip install -e '.[test]'")
  from gcp_storage_emulator.server import create_server

  with socket.socket() as probe:
    probe.bind(("localhost", 0))
    port = probe.getsockname()[1]
  server = create_server("localhost", port, in_memory=True, default_bucket="bucket")
  server.start()
  with pytest.MonkeyPatch.context() as patch:
    for name in ("STORAGE_EMULATOR_HOST", "TENSORSTORE_GCS_HTTP_URL"):
      patch.setenv(name, f"http://localhost:{port}")
    patch.setenv("GOOGLE_AUTH_TOKEN_FOR_TESTING", "any")
    yield epath.Path("gs://bucket")
  server.stop()


@pytest.fixture
def beside(tmp_path):
  """What `mirror` takes for a bucket: a path that is no pathlib.Path.  It lies on this disk."""
  return epath.Path(tmp_path / "bucket")


def test_a_folder_of_this_machine_is_its_own_mirror(tmp_path):
  with storage.mirror(tmp_path) as (files, push):
    push()
  assert files is tmp_path and list(tmp_path.iterdir()) == []


def test_a_mirror_begins_with_what_the_bucket_has_and_gives_it_what_changes(beside):
  (beside / "checkpoints").mkdir(parents=True)
  (beside / "checkpoints" / "huge").write_text("x")
  (beside / "metrics.jsonl").write_text("1\n")
  with pytest.raises(OSError, match="a guard"), storage.mirror(beside) as (files, push):
    assert [file.name for file in files.iterdir()] == ["metrics.jsonl"]
    (beside / "metrics.jsonl").unlink()
    push()
    assert not (beside / "metrics.jsonl").exists()  # unchanged: not sent
    with (files / "metrics.jsonl").open("a") as file:
      file.write("2\n")
    (files / "tensorboard" / "train").mkdir(parents=True)
    (files / "tensorboard" / "train" / "events").write_bytes(b"\0\1")
    push()
    assert (beside / "metrics.jsonl").read_text() == "1\n2\n"
    assert (beside / "tensorboard" / "train" / "events").read_bytes() == b"\0\1"
    (files / "metrics.jsonl").write_text("1\n3\n")  # the same size, as after a cut
    raise OSError("a guard stops the run")
  assert (beside / "metrics.jsonl").read_text() == "1\n3\n"


def test_only_process_0_touches_the_bucket(beside, monkeypatch):
  beside.mkdir()
  (beside / "metrics.jsonl").write_text("1\n")
  monkeypatch.setattr(storage.jax, "process_index", lambda: 1)
  with storage.mirror(beside) as (files, push):
    assert list(files.iterdir()) == []
    (files / "metrics.jsonl").write_text("of process 1")
    push()
  assert (beside / "metrics.jsonl").read_text() == "1\n"


def test_a_store_that_nothing_here_can_read_is_said_in_one_sentence():
  with pytest.raises(ValueError, match=r"--workdir = 's3://any/run': .*s3fs.*pip install 'grpojax\[gcs\]'"):
    storage.resolve("s3://any/run", "--workdir")


@pytest.mark.slow
def test_a_run_in_a_bucket_goes_on_from_there_alone(bucket, cache, tmp_path, monkeypatch, capsys):
  """Two starts, between which all that this machine had is lost, are one run on disk."""
  place, saved = storage.resolve("gs://bucket/run", "--workdir"), []

  def save(checkpoints, step, *rest):  # before a checkpoint exists, its records do
    lines = (place / "metrics.jsonl").read_text().splitlines()
    saved.append((step, sum('"train"' in line for line in lines)))
    return original(checkpoints, step, *rest)

  original = checkpointer.save
  monkeypatch.setattr(checkpointer, "save", save)
  for steps in (1, 2):
    train.run(train.prepare(tiny(cache, steps=steps), place))
  assert saved == [(1, 1), (2, 2)] and "resumed after step 1 of 2" in capsys.readouterr().out

  train.run(train.prepare(tiny(cache, steps=2), tmp_path / "whole"))
  trained = lambda folder: [r for r in comparable(metrics.read(folder)) if r["kind"] == "train"]
  with storage.mirror(place) as (files, _):
    ours, theirs = trained(files), trained(tmp_path / "whole")
  assert ours == theirs and len(ours) == 2
  on_disk = {p.name for p in (tmp_path / "whole").iterdir()} - {".lock"}  # a bucket's lease ends with its run
  assert on_disk <= {p.name for p in place.iterdir()}
  assert list((place / "tensorboard" / "eval").iterdir())
  with pytest.raises(ValueError, match="another config"):
    train.prepare(tiny(cache, steps=2, seed=1), place)

  (place / "report.html").unlink()
  monkeypatch.setattr(sys, "argv", ["report", "gs://bucket/run"])
  report_command.command()
  assert "gs://bucket/run/report.html" in capsys.readouterr().out
  assert "<html" in (place / "report.html").read_text()
  export.main(["--workdir=gs://bucket/run", f"--out={tmp_path / 'exported'}"])
  assert "after step 2" in capsys.readouterr().out


@pytest.mark.slow
def test_what_a_logger_got_is_noted_in_the_bucket_for_a_start_elsewhere(bucket):
  got = []
  write = lambda _, step, values: got.append((step, values["reward"]))
  make = lambda: types.SimpleNamespace(write=write, close=lambda: None)
  for start, steps in enumerate([(1, 2), (2, 3)]):
    with contextlib.closing(Feed("toy", make, bucket / "logged" / "loggers" / "toy.json")) as feed:
      for step in steps:
        feed.write("train", step, {"reward": start})
  assert got == [(1, 0), (2, 0), (3, 1)]


@pytest.mark.parametrize("where_it_is", ["disk", pytest.param("bucket", marks=pytest.mark.slow)])
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_it_taken(where_it_is, bucket, tmp_path, capsys):
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), "data")
  where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  tree = {"weights": jax.device_put(np.arange(1000, dtype=np.float32), where)}
  layout = {"weights": jax.ShapeDtypeStruct((1000,), np.float32)}, {"weights": where}
  run = {"bucket": bucket, "disk": tmp_path}[where_it_is] / "damaged_run"
  for steps in ((2, 3), (3,)):  # the second time another one of step 3
    checkpoints = checkpointer.open_checkpoints(run, 2)
    for step in steps:
      checkpointer.save(checkpoints, step, tree, {"step": step})
    checkpointer.finish(checkpoints)
    for file in (run / "checkpoints" / "3" / "tree" / "d").iterdir():
      file.write_bytes(bytes(len(file.read_bytes())))
    found, host = checkpointer.latest(checkpoints, *layout)
    checkpoints.close()
    np.testing.assert_array_equal(found["weights"], tree["weights"])
    assert host == {"step": 2} and "checkpoint 3 is damaged and now in" in capsys.readouterr().out
  assert {folder.name for folder in (run / "damaged").iterdir()} == {"3", "3-1"}
  assert {folder.name for folder in (run / "checkpoints").iterdir()} == {"2"}
  assert list((run / "damaged" / "3" / "tree" / "d").iterdir())


def test_data_in_a_bucket_is_read_as_from_disk(bucket, tmp_path):
  lines = '{"prompt": "1 + 1?", "answer": "2"}\n\n{"prompt": "2 + 2?", "answer": "4"}\n'
  (tmp_path / "train-0.jsonl").write_text(lines)
  pq.write_table(pa.table({"prompt": ["3 + 3?"], "answer": ["6"]}), tmp_path / "train-1.parquet")
  for file in tmp_path.iterdir():
    (bucket / "data" / file.name).write_bytes(file.read_bytes())
  for pattern in ("/", "/train-*", "/*-0*", "/train-1.parquet"):
    here, there = (data_files.find("config.data", f"{root}{pattern}") for root in (tmp_path, "gs://bucket/data"))
    assert [f.name for f in here] == [f.name for f in there] and here
    for ours, theirs in zip(here, there, strict=True):
      assert list(data_files.read(ours)) == list(data_files.read(theirs))
  with pytest.raises(ValueError, match="matches no"):
    data_files.find("config.data", "gs://bucket/nothing/*.jsonl")


def test_a_model_in_a_bucket_is_fetched_once_and_again_when_it_changes(bucket, tmp_path):
  weights = np.random.default_rng(0).bytes(3 << 20)
  (bucket / "models" / "one" / "config.json").write_text("{}")
  (bucket / "models" / "one" / "model.safetensors").write_bytes(weights)
  (bucket / "models" / "one" / "pytorch_model.bin").write_bytes(b"not wanted")
  again = lambda: fetch.fetch("gs://bucket/models/one", "config.model.path", str(tmp_path))
  first = again()
  assert {file.name for file in first.iterdir()} == {"config.json", "model.safetensors"}
  assert (first / "model.safetensors").read_bytes() == weights
  before = (first / "config.json").stat().st_mtime_ns
  assert again() == first and (first / "config.json").stat().st_mtime_ns == before
  (bucket / "models" / "one" / "config.json").write_text("{ }")
  assert again() != first
  shutil.rmtree(tmp_path / "models")
  with pytest.raises(ValueError, match=r"config.model.path = 'gs://bucket/models/none' has no files"):
    fetch.fetch("gs://bucket/models/none", "config.model.path", str(tmp_path))
  assert fetch.fetch(str(tmp_path), "config.model.path", str(tmp_path)) == tmp_path


def test_a_folder_that_cannot_be_made_is_named_by_its_flag(tmp_path):
  storage.make_folder(tmp_path / "a" / "b", "--out")
  storage.make_folder(tmp_path / "a" / "b", "--out")  # it is there
  (tmp_path / "file").touch()
  with pytest.raises(ValueError, match=r"--out=.*/file cannot be made \(File exists: .*\); name a"):
    storage.make_folder(tmp_path / "file", "--out")
