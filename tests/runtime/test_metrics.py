"""The record of a run survives kills, resumes and NaN."""

import itertools
import json
import math
import struct

import jax
import pytest
from logged_run import run
from tensorboardX.proto.event_pb2 import Event, SessionLog

from grpojax.runtime import metrics, storage


def lines(workdir, name="metrics"):
  """Every line, parsed by a JSON reader that refuses what JSON does not have (NaN, Infinity)."""

  def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")

  text = (workdir / f"{name}.jsonl").read_text()
  assert text == "" or text.endswith("\n")
  return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def without_wall(records):
  return [{key: value for key, value in record.items() if key != "wall"} for record in records]


def test_a_resumed_run_leaves_the_record_of_an_unbroken_one(tmp_path):
  run(tmp_path / "unbroken", 0, 8)
  run(tmp_path / "resumed", 0, 7)  # killed after step 7; the last checkpoint is that of step 4
  run(tmp_path / "resumed", 4, 8)
  for name in ("metrics", "completions"):
    unbroken, resumed = (lines(tmp_path / run, name) for run in ("unbroken", "resumed"))
    assert without_wall(resumed) == without_wall(unbroken)


def test_a_run_without_a_checkpoint_starts_with_empty_files(tmp_path):
  run(tmp_path, 0, 3)
  run(tmp_path, 0, 1)
  assert [(r["kind"], r["step"]) for r in lines(tmp_path)] == [
    ("cold_start", 30),
    ("eval", 0),
    ("train", 1),
  ]
  assert [r["step"] for r in lines(tmp_path, "completions")] == [1]


@pytest.mark.parametrize("name", ["metrics", "completions"])
def test_a_torn_last_line_is_dropped(tmp_path, name):
  run(tmp_path, 0, 4)
  path = tmp_path / f"{name}.jsonl"
  whole = metrics.read(tmp_path, name)
  path.write_text(path.read_text()[:-9])  # killed in the middle of the last write
  assert metrics.read(tmp_path, name) == whole[:-1]
  metrics.Writer(tmp_path, 4).close()
  assert lines(tmp_path, name) == whole[:-1]


GOOD = '{"step": 1, "wall": 9.5, "kind": "train", "reward": null}'
SPOILT = [
  '{"st', "[1]", "7", '{"step": 2}', GOOD.replace("null", '"x"'), GOOD.replace("train", "other"),
  GOOD.replace("1,", "1.5,"), "[" * 10**5, "\x00\xff",
]  # fmt: skip


@pytest.mark.parametrize("line", SPOILT, ids=lambda line: line[:20])
def test_a_spoilt_line_is_said_and_left_out(tmp_path, capsys, line):
  (tmp_path / "metrics.jsonl").write_bytes(f"{GOOD}\n{line}\n{GOOD}\n".encode("latin-1"))
  assert metrics.read(tmp_path) == [json.loads(GOOD)] * 2
  assert f"{tmp_path}/metrics.jsonl: 1 spoilt lines are left out (2)" in capsys.readouterr().out


GROUP = {"step": 1, "prompt": "?", "completions": ["a"], "rewards": [1.0], "lengths": [3], "ended": [True]}


CHANGES = {"prompt": 1}, {"rewards": []}, {"completions": [1]}, {"lengths": ["x"]}, {"ended": None}


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_group_without_its_parts_is_spoilt(tmp_path, capsys, change):
  lines = [json.dumps(GROUP), json.dumps(GROUP | change)]
  (tmp_path / "completions.jsonl").write_text("\n".join(lines) + "\n")
  assert metrics.read(tmp_path, "completions") == [GROUP]
  assert "1 spoilt lines" in capsys.readouterr().out


def test_a_file_that_grows_is_parsed_once(tmp_path):
  """Line by line, also where one is written in two parts; a file in its place is another one."""
  path, parsed = tmp_path / "completions.jsonl", []
  follower = metrics.Follower("completions", lambda group: parsed.append(group["step"]) or group["step"])
  line = lambda step: json.dumps(GROUP | {"step": step}) + "\n"
  assert follower.read(tmp_path) == []
  path.write_text(line(1) + "spoilt\n" + line(2)[:9])
  assert follower.read(tmp_path) == [1]
  with path.open("a") as file:
    file.write(line(2)[9:] + line(3))
  assert follower.read(tmp_path) == follower.read(tmp_path) == [1, 2, 3] and parsed == [1, 2, 3]
  storage.write(path, line(1) + line(7) + line(8) + line(9))  # longer, and by a rename, as a resume does it
  assert follower.read(tmp_path) == [1, 7, 8, 9]
  path.write_text(line(4))  # shorter
  assert follower.read(tmp_path) == [4]
  path.unlink()
  assert follower.read(tmp_path) == []


def test_not_finite_becomes_null_and_stays_a_key(tmp_path):
  with metrics.Writer(tmp_path) as writer:
    writer.write("train", 1, {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 2.0})
    group = dict(completions=["", ""], rewards=[math.nan, 1.0], lengths=[0, 0], ended=[True] * 2)
    writer.completions(1, [{"prompt": "", **group}])
  (record,) = lines(tmp_path)
  assert (record["a"], record["b"], record["c"], record["d"]) == (None, None, None, 2.0)
  assert lines(tmp_path, "completions")[0]["rewards"] == [None, 1.0]


def test_any_text_fits_in_one_line(tmp_path):
  # Line breaks of all sorts and half of a surrogate pair.
  nasty = 'a\nb\r\u2028\u0085\x00"\\ 数 \ud800'
  with metrics.Writer(tmp_path) as writer:
    group = dict(prompt=nasty, completions=[nasty], rewards=[0.0], lengths=[9], ended=[False])
    writer.completions(1, [group, group])
  assert [r["prompt"] for r in metrics.read(tmp_path, "completions")] == [nasty, nasty]


def test_a_metric_cannot_overwrite_the_step(tmp_path):
  with metrics.Writer(tmp_path) as writer, pytest.raises(TypeError, match="step"):
    writer.write("train", 1, {"step": 2.0})


def test_only_process_zero_writes(tmp_path, monkeypatch):
  monkeypatch.setattr(jax, "process_index", lambda: 1)
  run(tmp_path, 0, 3)
  assert list(tmp_path.iterdir()) == []


def events(directory):
  """The scalars and texts of a TensorBoard run as its reader keeps them: a restart at step s purges >= s."""
  kept = []
  for path in sorted(directory.iterdir()):
    data = path.read_bytes()
    while data:  # TFRecord: length uint64, its crc, the message, its crc
      (length,) = struct.unpack("<Q", data[:8])
      event, data = Event.FromString(data[12 : 12 + length]), data[16 + length :]
      if event.session_log.status == SessionLog.START:
        kept = [old for old in kept if old[1] < event.step]
      for value in event.summary.value:
        text = value.tensor.string_val
        kept.append((value.tag, event.step, text[0].decode() if text else value.simple_value))
  return kept


def test_tensorboard_holds_the_same_numbers_once(tmp_path, monkeypatch):
  clock = itertools.count(10**9)  # event files are named by the second
  monkeypatch.setattr(metrics.time, "time", lambda: next(clock))
  run(tmp_path, 0, 3, "tensorboard")
  run(tmp_path, 0, 7, "tensorboard")
  run(tmp_path, 4, 8, "tensorboard")
  both = events(tmp_path / "tensorboard" / "train")
  train = [event for event in both if event[0] == "reward"]
  assert [event[:2] for event in train] == [("reward", step) for step in range(1, 9)]
  assert [event[2] for event in train] == pytest.approx([step / 10 for step in range(1, 9)])
  assert events(tmp_path / "tensorboard" / "cold_start") == [("loss", 30, 1.5)]
  texts = [event for event in both if event[0] != "reward"]
  assert [event[:2] for event in texts] == [("completions/text_summary", step) for step in (2, 4, 6, 8)]
  assert texts[0][2].splitlines() == [
    "    1+1?", "    <b>now</b>", "", "reward 1.0, 1 tokens", "", "    2", "",
    "reward 0.0, 2 tokens, cut", "", "    ```", "    3\\x00\\ud800",
  ]  # fmt: skip


def test_what_was_drawn_takes_the_place_of_what_was_kept():
  record = {"step": 1, "reward": None, "drawn/reward": 0.1, "entropy": 0.5}
  assert metrics.of_drawn(record) == {"step": 1, "reward": 0.1, "entropy": 0.5}


def test_seconds_by_phase_are_those_of_the_records():
  records = [{"time/rollout": 3.0, "time/update": 2.5, "time/host": 4.5, "time/step": 10.0}] * 2
  assert metrics.phase_seconds(records) == {"rollout": 6.0, "update": 5.0, "host": 9.0}


def test_commands_has_a_line_for_every_start_of_the_run(tmp_path, monkeypatch):
  for command, resume_step in (("lost", 0), ("first run", 0), ("resumed", 4)):
    monkeypatch.setattr(metrics.sys, "orig_argv", ["python", command])
    metrics.Writer(tmp_path, resume_step).close()
  assert (tmp_path / "commands.txt").read_text() == "python 'first run'\npython resumed\n"
