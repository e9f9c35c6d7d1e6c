"""One writer at a time, by the kernel's lock and by a lease; the second one is told who the first is."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from etils import epath

from grpojax.runtime import lock


@pytest.fixture(autouse=True)
def quick(monkeypatch):
  for name, seconds in dict(RENEW=0.05, LEASE=0.5, SETTLE=0.02).items():
    monkeypatch.setattr(lock, name, seconds)


@pytest.fixture(params=["disk", "disk that cannot lock", "bucket"])
def file(request, tmp_path, monkeypatch):
  if request.param == "disk that cannot lock":

    def cannot(*_):
      raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", cannot)
  return {"bucket": epath.Path}.get(request.param, type(tmp_path))(tmp_path / "folder" / "lock")


HOLDER = """
import pathlib, sys, time
from grpojax.runtime import lock
with lock.hold(pathlib.Path(sys.argv[1]), "the run"):
  print("held", flush=True)
  time.sleep(600)
"""


def test_a_second_one_is_told_who_holds_it_and_since_when(file):
  said = rf"the run: process {os.getpid()} on .* is at work there since 20\d\d-.* UTC \(.*python"
  with lock.hold(file, "the run"), pytest.raises(lock.Held, match=said), lock.hold(file, "the run"):
    pytest.fail("two hold it")
  with lock.hold(file, "the run"):
    pass


def test_one_that_waits_gets_it_when_it_is_left(file, monkeypatch, capsys):
  monkeypatch.setattr(lock.time, "sleep", lambda _, sleep=lock.time.sleep: sleep(0.01))
  got, left = [], threading.Event()

  def second():
    with lock.hold(file, "the dataset", wait=True):
      got.append(left.is_set())

  with lock.hold(file, "the dataset"):
    thread = threading.Thread(target=second)
    thread.start()
    thread.join(0.3)
    assert not got
    left.set()
  thread.join(10)
  assert got == [True] and "at work there since" in capsys.readouterr().out


def test_a_process_that_was_killed_keeps_nothing(tmp_path):
  file = tmp_path / "lock"
  holder = subprocess.Popen([sys.executable, "-c", HOLDER, file], stdout=subprocess.PIPE, text=True)
  assert holder.stdout.readline() == "held\n"
  with pytest.raises(lock.Held, match=f"process {holder.pid} "), lock.hold(file, "the run"):
    pass
  holder.send_signal(signal.SIGKILL)
  holder.wait()
  with lock.hold(file, "the run"):
    pass


def test_what_the_holder_starts_does_not_hold_it_after_its_end(tmp_path):
  with lock.hold(tmp_path / "lock", "the run"):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
  with lock.hold(tmp_path / "lock", "the run"):
    child.communicate(b"\n")


def test_a_lease_of_another_machine_is_taken_once_it_is_not_renewed(tmp_path, capsys):
  file = epath.Path(tmp_path / "lease")
  file.write_text(json.dumps(lock._identity() | {"boot": "another", "host": "far"}))
  with lock.hold(file, "the run"):
    assert json.loads(file.read_text())["pid"] == os.getpid()
  assert "on far is at work there since" in capsys.readouterr().out and not file.exists()


def test_a_lease_of_a_process_that_has_ended_here_is_taken_at_once(tmp_path, monkeypatch):
  monkeypatch.setattr(lock, "LEASE", 1e6)
  ended = subprocess.Popen(["true"])
  ended.wait()
  file = epath.Path(tmp_path / "lease")
  file.write_text(json.dumps(lock._identity() | {"pid": ended.pid}))
  with lock.hold(file, "the run"):
    pass


def test_of_two_that_take_a_lease_at_once_one_gets_it(tmp_path, monkeypatch):
  file = epath.Path(tmp_path / "lease")
  other = json.dumps(lock._identity() | {"id": "other", "pid": 1})
  monkeypatch.setattr(lock.time, "sleep", lambda _: file.write_text(other))  # the other wrote last
  with pytest.raises(lock.Held, match="process 1 "), lock.hold(file, "the run"):
    pass
  assert file.read_text() == other


def test_one_whose_lease_was_taken_is_told_and_leaves_it(tmp_path):
  file = epath.Path(tmp_path / "lease")
  with lock.hold(file, "the run") as check:
    check()
    file.write_text(json.dumps(lock._identity() | {"id": "other", "pid": 1}))
    with pytest.raises(OSError, match=r"was not renewed for .* and is taken: process 1 "):
      check()
  assert json.loads(file.read_text())["id"] == "other"
