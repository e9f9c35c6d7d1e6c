"""Seconds go to the phase that the device was in, wherever the host came to wait."""

import threading

import pytest

from grpojax.runtime import timer as timer_lib
from grpojax.runtime.timer import Timer


def test_timer_splits_a_step_into_phases(monkeypatch):
  clock = iter([0.0, 1.0, 4.0, 4.0, 6.0, 6.0, 6.5, 10.0, 20.0])
  monkeypatch.setattr(timer_lib.time, "perf_counter", lambda: next(clock))
  timer = Timer()  # 0
  for name in ("rollout", "update", "update"):  # 1-4, 4-6, 6-6.5
    with timer.phase(name):
      pass
  first = timer.take()  # 10
  assert first == {"time/rollout": 3.0, "time/update": 2.5, "time/host": 4.5, "time/step": 10.0}
  assert timer.take() == {"time/host": 10.0, "time/step": 10.0}  # 20


class Update:
  """What a device makes until it is `done`."""

  def __init__(self):
    self.done = threading.Event()

  def block_until_ready(self):
    self.done.wait()


@pytest.mark.parametrize(
  ("ready", "expected"),
  [(1.0, {"update": 0.0, "rollout": 4.0}), (5.0, {"update": 3.0, "rollout": 1.0})],  # before, within
)
def test_a_phase_gives_away_what_the_device_did_first(monkeypatch, ready, expected):
  """As where sending the rollout (2-6) waits for the update, inside of what is timed as the rollout."""
  now, update = [0.0], Update()
  monkeypatch.setattr(timer_lib.time, "perf_counter", lambda: now[0])
  timer = Timer()
  timer.follow(update)

  def device():
    now[0] = ready
    update.done.set()
    timer.watcher.join()

  if ready < 2:
    device()
  now[0] = 2.0
  with timer.phase("rollout", "update"):
    if ready > 2:
      device()
    now[0] = 6.0
  assert timer.seconds == expected


def test_who_interrupts_a_phase_does_not_wait_for_the_device():
  timer, update = Timer(), Update()
  timer.follow(update)
  with pytest.raises(KeyboardInterrupt), timer.phase("rollout", "update"):
    raise KeyboardInterrupt
  assert timer.watcher.is_alive() and "update" not in timer.seconds
  update.done.set()


def test_an_update_that_fails_is_not_timed():
  class Failed:
    def block_until_ready(self):
      raise RuntimeError("out of memory")

  timer = Timer()
  timer.follow(Failed())
  with timer.phase("rollout", "update"):
    pass
  assert timer.seconds["update"] == 0.0
