"""Every logger gets each record once, in one remote run, also of a run that was killed; none ends a run.

Fakes of the three libraries count calls, so that this runs without them; with them, their own local modes do.
"""

import importlib.util
import json
import sqlite3
import subprocess
import sys
import threading
import types

import jax
import pytest
from logged_run import GROUP, ID, SCALARS, run
from subprocesses import ROOT, environment

from grpojax.config import check as config_lib
from grpojax.recipes import base
from grpojax.runtime import loggers, metrics
from grpojax.runtime.loggers import feed

ROWS = [
  dict(prompt=GROUP["prompt"], completion="2", reward=1.0, length=1, ended=True),
  dict(prompt=GROUP["prompt"], completion="```\n3\\x00\\ud800", reward=0.0, length=2, ended=False),
]
TABLES = [2, 4, 6, 8]  # steps whose completions are sent


class Calls:
  """What a library was told: how each run was opened, its scalars and its tables by step."""

  def __init__(self):
    self.opened, self.scalars, self.tables, self.closed = [], [], [], 0


def fake_wandb(calls: Calls):
  def log(values):
    (step,) = [value for name, value in values.items() if name.endswith("/step")]
    for name, value in values.items():
      if isinstance(value, types.SimpleNamespace):
        calls.tables.append((step, [dict(zip(value.columns, row, strict=True)) for row in value.data]))
      elif not name.endswith("/step"):
        calls.scalars.append((name, step, value))

  def init(**how):
    calls.opened.append((how["project"], how["id"], how["resume"]))
    finish = lambda: setattr(calls, "closed", calls.closed + 1)
    return types.SimpleNamespace(
      log=log, define_metric=lambda *_, **__: None, finish=finish, offline=True, dir="here"
    )

  return dict(init=init, Table=types.SimpleNamespace, Settings=dict, setup=offline)


def offline():
  return types.SimpleNamespace(settings=types.SimpleNamespace(mode="offline"))


def fake_trackio(calls: Calls):
  def log(values, step):
    for name, value in values.items():
      if isinstance(value, types.SimpleNamespace):
        calls.tables.append((step, value.data))
      else:
        calls.scalars.append((name, step, value))

  def init(project, name, resume, private, **_):
    assert private
    calls.opened.append((project, name, resume))
    return types.SimpleNamespace(log=log, finish=lambda: setattr(calls, "closed", calls.closed + 1))

  return dict(init=init, Table=types.SimpleNamespace)


def fake_mlflow(calls: Calls):
  def log_table(columns, file):
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    calls.tables.append((int(file.removeprefix("completions/").removesuffix(".json")), rows))

  def log_metrics(values, step):
    assert not any("@" in name for name in values)
    calls.scalars += [(name.replace("_at_", "@"), step, value) for name, value in values.items()]

  def search_runs(experiments, query, output_format):
    info = types.SimpleNamespace(run_id="theirs")
    return [types.SimpleNamespace(info=info)] if calls.opened and query == f"tags.grpojax = '{ID}'" else []

  def start_run(run_id=None, run_name="", tags=None):
    calls.opened.append((run_id, run_name, tags))

  return dict(
    set_experiment=lambda name: types.SimpleNamespace(experiment_id=name), search_runs=search_runs,
    start_run=start_run, log_params=lambda _: None, log_metrics=log_metrics, log_table=log_table,
    end_run=lambda: setattr(calls, "closed", calls.closed + 1),
  )  # fmt: skip


OPENED = {
  "wandb": [("tests", ID, "allow")] * 2,
  "trackio": [("tests", "toy-01234567", "allow")] * 2,
  "mlflow": [(None, "toy", {"grpojax": ID}), ("theirs", "", None)],
}


@pytest.fixture
def install(monkeypatch):
  """install(name, contents): the library of that name, for the file that imports it."""

  def put(name, contents):
    module = None if contents is None else types.ModuleType(name)
    if module:
      vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, f"grpojax.runtime.loggers.{name}", raising=False)

  yield put
  for name in loggers.REMOTE:  # the next import is of the library itself
    sys.modules.pop(f"grpojax.runtime.loggers.{name}", None)


@pytest.mark.parametrize("name", loggers.REMOTE)
def test_a_killed_and_resumed_run_is_one_remote_run_with_every_record_once(tmp_path, install, name, capsys):
  calls = Calls()
  install(name, globals()[f"fake_{name}"](calls))
  loggers.check(name)
  run(tmp_path, 0, 7, name)
  run(tmp_path, 4, 8, name)
  assert calls.opened == OPENED[name] and calls.closed == 2
  assert calls.scalars == SCALARS
  assert calls.tables == [(step, ROWS) for step in TABLES]
  assert "note:" not in capsys.readouterr().out


def test_all_are_told_at_once_and_only_by_process_0(tmp_path, install, monkeypatch):
  calls = {name: Calls() for name in loggers.REMOTE}
  for name in loggers.REMOTE:
    install(name, globals()[f"fake_{name}"](calls[name]))
  run(tmp_path / "first", 0, 2, ", ".join(loggers.NAMES))
  assert all(len(each.scalars) == 6 for each in calls.values())
  assert (tmp_path / "first" / "tensorboard").exists()
  monkeypatch.setattr(jax, "process_index", lambda: 1)
  run(tmp_path / "other", 0, 2, ",".join(loggers.NAMES))
  assert all(len(each.opened) == 1 for each in calls.values())
  assert list((tmp_path / "other").iterdir()) == []


def test_an_unknown_name_is_refused_with_those_there_are():
  config = base.get_config()
  config.log.to = "tensorboard, neptune"
  with pytest.raises(ValueError, match=r"^config.log.to = .*: there is no logger 'neptune'; ") as error:
    config_lib.check(config, devices=1)
  assert all(name in str(error.value) for name in loggers.NAMES)
  assert loggers.named(" wandb,,wandb ") == ["wandb"] and loggers.named("") == []


@pytest.mark.parametrize("name", loggers.REMOTE)
def test_a_missing_library_names_its_extra(install, name):
  install(name, None)
  with pytest.raises(ValueError, match=rf"^config.log.to = '{name}'.*pip install 'grpojax\[{name}\]'\.$"):
    loggers.check(name)


def test_wandb_without_a_key_is_refused_before_the_run(install):
  online = lambda: types.SimpleNamespace(settings=types.SimpleNamespace(mode="online"))
  install("wandb", dict(setup=online, login=lambda prompt, verify: False))
  with pytest.raises(ValueError, match="has no API key; run `wandb login`, or set WANDB_API_KEY"):
    loggers.check("wandb")


def test_a_logger_that_fails_is_said_once_and_counted_and_the_run_goes_on(tmp_path, install, capsys):
  calls = Calls()
  library = fake_trackio(calls)
  opened = library["init"]

  def init(*args, **how):
    found, log = opened(*args, **how), library["log"]
    return types.SimpleNamespace(log=log, finish=found.finish)

  def log(values, step):
    if step in (3, 5):
      raise ConnectionError("no route\nto host")
    calls.scalars += [(name, step, value) for name, value in values.items()]

  install("trackio", library | dict(init=init))
  library["log"] = log
  run(tmp_path, 0, 6, "trackio", every=0)
  out = capsys.readouterr().out
  assert out.count("note: trackio takes no record (ConnectionError: no route to host)") == 1
  assert "note: trackio has not got 2 of this run's records" in out
  assert [step for name, step, _ in calls.scalars if name == "train/reward"] == [1, 2, 4, 6]
  assert [r["step"] for r in metrics.read(tmp_path) if r["kind"] == "train"] == [1, 2, 3, 4, 5, 6]


def test_what_a_logger_has_lost_is_a_metric(tmp_path, install):
  lost = threading.Event()

  def init(*_, **__):
    lost.set()
    raise ConnectionError

  install("trackio", dict(init=init))
  about = loggers.Run(ID, "toy", "tests", {}, tmp_path, 0)
  with metrics.Writer(tmp_path, 0, loggers.open_all("trackio", about, tmp_path)) as writer:
    writer.write("train", 1, {"reward": 0.5})
    while not writer.loggers[0].lost:
      lost.wait(0.01)
    writer.write("train", 2, {"reward": 0.5})
  first, second = metrics.read(tmp_path)
  assert "loggers/trackio/lost" not in first and second["loggers/trackio/lost"] == 1


def test_a_logger_that_hangs_holds_up_no_step_and_not_the_end(tmp_path, install, capsys, monkeypatch):
  monkeypatch.setattr(feed, "PATIENCE", 0.1)
  monkeypatch.setattr(feed, "LONGEST", 3)
  let_go = threading.Event()
  install("trackio", dict(init=lambda *_, **__: let_go.wait(60)))
  run(tmp_path, 0, 4, "trackio", every=0)
  let_go.set()
  out = capsys.readouterr().out
  assert "takes no record (3 records wait)" in out and "waiting for trackio, 0.1 s at most" in out
  assert "has not got 8 of this run's records" in out
  assert len(metrics.read(tmp_path)) == 8


# The libraries themselves, in the modes that need no network; each in a process of its own.


def alone(name: str, workdir, **extra) -> None:
  if not importlib.util.find_spec(name):
    pytest.skip(f"needs {name}: pip install 'grpojax[{name}]'")
  words = [sys.executable, ROOT / "tests" / "logged_run.py", name, workdir]
  done = subprocess.run(words, env=environment(**extra), capture_output=True, text=True, timeout=240)
  assert done.returncode == 0 and "note:" not in done.stdout, done


@pytest.mark.slow
def test_wandb_offline(tmp_path):
  alone("wandb", tmp_path, WANDB_MODE="offline")
  from wandb.proto import wandb_internal_pb2

  rows, tables = [], []
  for path in sorted((tmp_path / "wandb").glob(f"offline-run-*/run-{ID}.wandb")):
    for data in leveldb_log(path.read_bytes()):
      record = wandb_internal_pb2.Record.FromString(data)
      items = record.history.item
      values = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
      kind = next((name.partition("/")[0] for name in values if name.endswith("/step")), "")
      if "train/completions/nrows" in values:
        tables.append((values["train/step"], values["train/completions/nrows"]))
      else:
        named = sorted(name for name in values if name.startswith(f"{kind}/") and name != f"{kind}/step")
        rows += [(name, values[f"{kind}/step"], values[name]) for name in named]
  assert rows == SCALARS and tables == [(step, 2) for step in TABLES]


def leveldb_log(data: bytes):
  """The records of a .wandb file: seven bytes of header, then LevelDB's log format in blocks of 32 KiB."""
  at, record = 7, b""
  while at + 7 <= len(data):
    left = 32768 - at % 32768
    if left < 7:
      at += left
      continue
    size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
    record += data[at + 7 : at + 7 + size]
    at += 7 + size
    if kind in (1, 4):  # whole, or the last piece
      yield record
      record = b""


@pytest.mark.slow
def test_trackio_on_this_machine(tmp_path):
  alone("trackio", tmp_path, TRACKIO_DIR=str(tmp_path / "own"))
  found = sqlite3.connect(tmp_path / "own" / "tests.db")
  written = list(found.execute("select run_id, run_name, step, metrics from metrics order by id"))
  assert {row[1] for row in written} == {"toy-01234567"} and len({row[0] for row in written}) == 1
  values = [(step, json.loads(text)) for _, _, step, text in written]
  scalars = [(name, step, x) for step, row in values for name, x in row.items() if isinstance(x, float)]
  assert scalars == SCALARS
  tables = [(step, row["train/completions"]["_value"]) for step, row in values if "train/completions" in row]
  assert tables == [(step, ROWS) for step in TABLES]


@pytest.mark.slow
def test_mlflow_in_a_local_file(tmp_path):
  where = f"sqlite:///{tmp_path}/mlflow.db"
  alone("mlflow", tmp_path, MLFLOW_TRACKING_URI=where, _MLFLOW_SERVER_ARTIFACT_ROOT=str(tmp_path / "files"))
  found = sqlite3.connect(tmp_path / "mlflow.db")
  ((status, artifacts),) = found.execute("select status, artifact_uri from runs")
  assert status == "FINISHED"
  rows = list(found.execute("select key, step, value from metrics"))
  order = lambda row: (row[0], row[1])
  assert sorted(rows, key=order) == sorted(((n.replace("@", "_at_"), s, v) for n, s, v in SCALARS), key=order)
  params = dict(found.execute("select key, value from params"))
  assert params["objective.surrogate.fn"] == "ppo_clip"
  tables = sorted((tmp_path / "files").rglob("completions/*.json"))
  assert artifacts.startswith(str(tmp_path)) and [int(path.stem) for path in tables] == TABLES
  assert json.loads(tables[0].read_text())["columns"] == list(ROWS[0])
