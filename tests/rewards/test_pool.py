"""Workers and servers that somebody kills, stops or exhausts: their calls are done again, by others."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from grpojax.rewards import pool, server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
MINE = f"{__name__}:pid_after"


def pid_after(seconds: float, folder: str) -> int:
  """Takes a while, the first time; notes which process was asked."""
  Path(folder, f"{os.getpid()}").touch()
  if len(os.listdir(folder)) == 1:
    time.sleep(seconds)
  return os.getpid()


def exhausted(folder: str) -> int:
  """Runs out of memory, the first time."""
  Path(folder, f"{os.getpid()}").touch()
  if len(os.listdir(folder)) == 1:
    raise MemoryError
  return 7


def dies(status: int) -> None:
  os._exit(status)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
  monkeypatch.syspath_prepend(str(Path(__file__).parent))
  yield
  for process in pool._SERVERS.values():
    server.kill(process)
  pool._SERVERS.clear()


def first_worker(folder: Path) -> int:
  while not (names := os.listdir(folder)):
    time.sleep(0.01)
  return int(names[0])


def disturb(folder: Path, number: int, of_server: bool = False) -> list:
  """Calls, and sends a signal to the worker, or to its server, while it works; the outcomes."""
  got = []
  ask = lambda: got.extend(pool.call(MINE, [[60, str(folder)]], timeout=90, workers=1))
  thread = threading.Thread(target=ask)
  thread.start()
  worker = first_worker(folder)
  os.kill(pool._SERVERS[MINE, 1].pid if of_server else worker, number)
  thread.join(60)
  assert not thread.is_alive(), "the call waits for the one that was disturbed"
  assert got != [worker]
  return got


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("of_server", [False, True], ids=["worker", "server"])
def test_what_a_killed_or_stopped_one_had_is_done_by_another(tmp_path, number, of_server):
  (pid,) = disturb(tmp_path, number, of_server)
  assert isinstance(pid, int) and pid > 0


@pytest.mark.slow
def test_an_idle_worker_may_be_killed(tmp_path):
  """Its pool replaces it, or dies and is replaced."""
  (worker,) = pool.call(MINE, [[0, str(tmp_path)]], timeout=30, workers=1)
  for _ in range(2):
    os.kill(worker, signal.SIGKILL)
    got = pool.call(MINE, [[0, str(tmp_path)]] * 3, timeout=30, workers=1)
    assert all(isinstance(pid, int) for pid in got) and worker not in got
    worker = got[-1]


def test_memory_that_runs_out_once_is_no_failure(tmp_path):
  assert pool.call(f"{__name__}:exhausted", [[str(tmp_path)]], timeout=30, workers=1) == [7]


def test_a_call_that_kills_its_worker_fails_alone(tmp_path):
  outcomes = pool.call(f"{__name__}:dies", [[3]], timeout=30, workers=1)
  assert isinstance(outcomes[0], RuntimeError) and "ProcessExpired" in str(outcomes[0])


TRAINER = """
import sys
from grpojax.rewards import pool
pool.call("os:getpid", [[]], timeout=30, workers=1)
print(pool._SERVERS["os:getpid", 1].pid, flush=True)
sys.stdin.read()
"""


def test_a_stopped_server_does_not_outlive_its_trainer():
  trainer = subprocess.Popen(
    [sys.executable, "-c", TRAINER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    env=os.environ | {"PYTHONPATH": str(Path(pool.__file__).parents[2])},
  )  # fmt: skip
  leader = int(trainer.stdout.readline())
  everyone = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
  members = [pid for pid in everyone if server.state(pid)[1] == leader]
  os.kill(leader, signal.SIGSTOP)
  assert len(members) > 1
  trainer.kill()
  trainer.wait()
  end = time.monotonic() + 20
  alive = lambda: [pid for pid in members if server.state(pid)[0] not in ("", "Z")]
  while (left := alive()) and time.monotonic() < end:
    time.sleep(0.1)
  for pid in left:
    os.kill(pid, signal.SIGKILL)
  assert not left
