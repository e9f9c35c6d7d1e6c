"""Environments for the tests of the pool: one that behaves, and one that does what it is told to."""

import os
import random
import signal
import time
from collections import deque
from pathlib import Path

import numpy as np

from grpojax.rollout.envs.interface import Turn


class Dice:
  """Says what it rolls with each of three generators; ends after `turns` actions."""

  def __init__(self, turns: int = 4, seconds: float = 0.0):
    self.left, self.seconds = turns, seconds

  def reset(self, example, seed):
    self.own = random.Random(seed)
    return Turn(f"{example['question']} {self._roll()}")

  def step(self, action):
    time.sleep(self.seconds)
    self.left -= 1
    return Turn(f"{action} {self._roll()}", reward=0.5, done=self.left == 0, anchor=("left", self.left))

  def close(self):
    pass

  def _roll(self):
    return f"{self.own.random():.6f} {random.random():.6f} {np.random.random():.6f}"  # noqa: NPY002


def _flood():
  while True:
    print("flood " * 1000)


class Obedient(Dice):
  """Does what an action says, where it names something bad."""

  def step(self, action):
    first, _, rest = action.partition(" ")
    if first == "once":  # the file says that it has been done
      if Path(rest).exists():
        return super().step(action)
      Path(rest).write_text(str(os.getpid()))
      time.sleep(60)
    return BAD[action]() if action in BAD else super().step(action)

  def close(self):
    raise RuntimeError("closing fails, too")


def _forks():
  """Leaves a child that outlives this process unless its group is killed, and hangs."""
  if not os.fork():
    time.sleep(600)
  time.sleep(600)


BAD = {
  "raise": lambda: {}["missing"],
  "exit": lambda: exit(3),
  "die": lambda: os._exit(3),
  "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
  "hang": lambda: time.sleep(600),
  "spin": lambda: deque(iter(int, 1), maxlen=0),  # without an end, and without memory
  "fork": _forks,
  "print": _flood,
  "memory": lambda: bytearray(8 << 30),
  "text": lambda: Turn("x" * (2 << 20)),
  "feedback": lambda: Turn("x", feedback="x" * (2 << 20)),
  "none": lambda: None,
  "string": lambda: "no turn",
  "number": lambda: Turn(7),
  "surrogate": lambda: Turn("\ud800"),
  "nan": lambda: Turn("x", reward=float("nan")),
  "word": lambda: Turn("x", reward="much"),
  "done": lambda: Turn("x", done="no"),
  "anchor": lambda: Turn("x", anchor={"a": 1}),
  "deep": lambda: Turn("x", anchor=("x" * (3 << 20),)),
}


class Forgetful(Dice):
  """Draws from the clock, so that playing an episode again gives another one."""

  def reset(self, example, seed):
    return Turn(f"{time.time_ns()}")

  def step(self, action):
    if action.startswith("die"):
      path = Path(action.partition(" ")[2])
      if not path.exists():
        path.touch()
        os._exit(3)
    return Turn("on")
