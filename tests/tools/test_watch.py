"""The live page: on this machine alone, and patient with a run that has just begun."""

import http.client
import json
import sys
import threading

import pytest

from grpojax.runtime import metrics
from grpojax.tools import watch


@pytest.fixture
def served(tmp_path):
  """(a run's folder without records, ask(path, host="127.0.0.1") -> (status, ETag, text), port)."""
  server = watch.serve([tmp_path], 0)
  threading.Thread(target=server.serve_forever, daemon=True).start()

  def ask(path, host="127.0.0.1"):
    link = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    link.request("GET", path, headers={"Host": f"{host}:{server.server_port}"})
    answer = link.getresponse()
    return answer.status, answer.headers.get("ETag"), answer.read().decode()

  yield tmp_path, ask, server.server_port
  server.shutdown()
  server.server_close()


def test_a_run_without_records_is_waited_for(served):
  workdir, ask, _ = served
  assert ask("/")[0] == 200 and "looks again" in ask("/")[2] and ask("/data.json")[0] == 204
  with metrics.Writer(workdir) as writer:
    writer.write("train", 1, {"reward": 0.5})
  assert 'data-chart="Reward"' in ask("/")[2] and "<svg" not in ask("/")[2]


def test_numbers_are_sent_where_something_is_new(served):
  workdir, ask, _ = served
  with metrics.Writer(workdir) as writer:
    writer.write("train", 1, {"reward": 0.5})
    status, seen, text = ask("/data.json")
    assert status == 200 and json.loads(text)["runs"][0]["main"]["y"]["reward"] == [0.5]
    assert ask(f"/data.json?seen={seen}")[0] == 204
    writer.write("train", 2, {"reward": float("nan")})
  status, newer, text = ask(f"/data.json?seen={seen}")
  assert status == 200 and newer != seen
  assert json.loads(text)["runs"][0]["main"]["y"]["reward"] == [0.5, None]


def test_a_look_parses_what_is_new_and_nothing_twice(served, monkeypatch):
  workdir, ask, _ = served
  parsed, record = [], metrics._record

  def counted(line, name):
    parsed.extend([name] if line else [])
    return record(line, name)

  monkeypatch.setattr(metrics, "_record", counted)
  group = dict(prompt="1+1?", completions=["2"], rewards=[1.0], lengths=[1], ended=[True])
  with metrics.Writer(workdir) as writer:
    for step in range(1, 5):
      writer.write("train", step, {"reward": 0.5})
      writer.completions(step, [group])
      data = json.loads(ask("/data.json")[2])
      assert [each["step"] for each in data["completions"]["groups"]] == list(range(1, step + 1))
      assert data["runs"][0]["main"]["x"]["step"] == list(range(1, step + 1))
  assert sorted(parsed) == ["completions"] * 4 + ["metrics"] * 4


def test_a_run_is_shown_beside_one_that_has_no_record_yet(tmp_path):
  for name in ("begun", "compiles"):
    (tmp_path / name).mkdir()
  with metrics.Writer(tmp_path / "begun") as writer:
    writer.write("train", 1, {"reward": 0.5})
  with watch.serve([tmp_path / "begun", tmp_path / "compiles"], 0) as server:
    page = watch.Page.__new__(watch.Page)
    page.workdirs, page.files = server.RequestHandlerClass.args
    assert 'data-chart="Reward"' in page._page()


def test_the_port_of_the_web_is_not_in_the_name(served):
  link = http.client.HTTPConnection("127.0.0.1", served[2], timeout=20)
  link.request("GET", "/", headers={"Host": "localhost"})
  assert link.getresponse().status == 200


def test_a_page_of_another_name_gets_nothing(served):
  """As one whose name was made to lead to 127.0.0.1."""
  assert served[1]("/", host="evil.example")[0] == 403
  assert served[1]("/data.json", host="evil.example")[0] == 403
  assert served[1]("/../config.json")[0] == 404


def test_what_cannot_be_shown_is_one_sentence(tmp_path, monkeypatch):
  for run in (str(tmp_path / "none"), "gs://bucket/run"):
    monkeypatch.setattr(sys, "argv", ["grpojax watch", run])
    with pytest.raises(ValueError, match="is no folder of this machine"):
      watch.command()
  with watch.serve([tmp_path], 0) as server, pytest.raises(ValueError, match=r"--port=\d+ cannot be used"):
    watch.serve([tmp_path], server.server_port)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_is_none_is_refused(tmp_path, port):
  with pytest.raises(ValueError, match=f"--port={port} is none; ports are 0 to 65535"):
    watch.serve([tmp_path], port)
