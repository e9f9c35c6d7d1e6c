"""Pool of environments: the `Environments` of the interface, each episode in a process that can be killed.

    trainer  -- lines of JSON -->  python -m grpojax.rollout.envs.server  -- forkserver -->  workers

An environment that raises, hangs, dies, floods or answers rubbish fails alone: its turn has a `failure`.
An episode whose worker somebody else killed, stopped or robbed of its memory is played again, by its actions,
in a new worker; if that gives other turns, the episode fails.  So are all episodes of a server that died.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import selectors
import subprocess
import time
from collections.abc import Hashable, Mapping
from types import MappingProxyType

import numpy as np

from grpojax.rewards import server as servers
from grpojax.rollout.envs import build
from grpojax.rollout.envs.interface import Turn

_LOOK = 1.0  # seconds between two looks at the server's health


@dataclasses.dataclass
class _Episode:
  example: dict
  seed: int
  actions: list[str] = dataclasses.field(default_factory=list)
  turns: list[Turn] = dataclasses.field(default_factory=list)
  number: int | None = None  # of the request whose answer is due
  overdue: float = 0.0  # when the server, and not only a worker, must be dead
  again: bool = False  # this request is being done for the second time


class Pool:
  """Environments of one kind.  `counts` has their steps and resets, failures, replays and seconds so far."""

  def __init__(self, name: str, knobs: Mapping = MappingProxyType({}), *, timeout: float = 60.0):
    """Starts the server.  `timeout` is the seconds that a reset or a step may take.  Raises ValueError."""
    build.check(name, knobs, timeout)
    self._arguments = [name, json.dumps(dict(knobs)), str(timeout)]
    self._timeout = timeout
    self._episodes: dict[int, _Episode] = {}
    self._answers: list[tuple[int, Turn]] = []
    self._numbers = itertools.count()
    self._server: subprocess.Popen | None = None
    self._inbox = b""
    self.counts = dict(steps=0, failures=0, replays=0, seconds=0.0)
    self._start()

  def reset(self, slot: int, example: dict, seed: int) -> None:
    """Starts an episode in a slot; one that is still there ends."""
    self._answers = [(other, turn) for other, turn in self._answers if other != slot]
    episode = self._episodes[slot] = _Episode(example, seed)
    self._request(slot, episode, dict(example=example, seed=seed, actions=[]))

  def step(self, slot: int, action: str) -> None:
    """Sends an action to the episode of a slot.  Raises ValueError where none waits for one."""
    episode = self._episodes.get(slot)
    if episode is None or episode.number is not None:
      raise ValueError(f"No episode in slot {slot} waits for an action.")
    episode.actions.append(action)
    self._request(slot, episode, dict(actions=[action]))

  def end(self, slot: int) -> None:
    """Ends the episode of a slot before its time; an answer that is still due never comes."""
    self._answers = [(other, turn) for other, turn in self._answers if other != slot]
    if self._episodes.pop(slot, None):
      self._write([slot, 0, dict(end=True)])

  def poll(self) -> list[tuple[int, Turn]]:
    """Returns the answers that have come since, in any order, without waiting."""
    self._read(0.0)
    answers, self._answers = self._answers, []
    return answers

  def wait(self, timeout: float) -> list[tuple[int, Turn]]:
    """Returns the answers that have come; waits at most `timeout` seconds for one that is due."""
    end = time.monotonic() + timeout
    answers = self.poll()
    while not answers and self._due() and (left := end - time.monotonic()) > 0:
      self._read(min(left, _LOOK))
      answers = self.poll()
    return answers

  def close(self) -> None:
    """Ends every episode and every process."""
    self._episodes.clear()
    self._answers.clear()
    self._stop()

  def _due(self) -> list[tuple[int, _Episode]]:
    return [(slot, episode) for slot, episode in self._episodes.items() if episode.number is not None]

  def _request(self, slot: int, episode: _Episode, request: dict) -> None:
    episode.number = next(self._numbers)
    episode.overdue = time.monotonic() + (len(request["actions"]) + 1) * self._timeout + 2 * servers.START
    self._write([slot, episode.number, request])

  def _write(self, message: list) -> None:
    if self._server is None:
      self._start()
    with contextlib.suppress(BrokenPipeError):  # its end is found when its answers are read
      self._server.stdin.write(json.dumps(message, default=_plain).encode() + b"\n")
      self._server.stdin.flush()

  def _start(self) -> None:
    self._server = servers.start("grpojax.rollout.envs.server", self._arguments, text=False)
    os.set_blocking(self._server.stdout.fileno(), False)
    self._inbox = b""

  def _stop(self) -> None:
    if self._server:
      servers.kill(self._server)
      for pipe in (self._server.stdin, self._server.stdout):
        with contextlib.suppress(BrokenPipeError):  # what nobody reads
          pipe.close()
      self._server = None

  def _read(self, seconds: float) -> None:
    """Takes in what the server has said, waiting at most `seconds` for it; replaces a server that is dead."""
    if self._server is None:
      return
    with selectors.DefaultSelector() as selector:
      selector.register(self._server.stdout, selectors.EVENT_READ)
      heard = selector.select(seconds)
    if not heard:
      now = time.monotonic()
      late = any(episode.overdue < now for _, episode in self._due())
      if late or (seconds and servers.state(self._server.pid)[0] == "T"):
        self._replace()
      return
    while data := self._server.stdout.read(1 << 20):
      *lines, self._inbox = (self._inbox + data).split(b"\n")
      for line in lines:
        self._take(*json.loads(line))
    if data == b"":
      self._replace()

  def _replace(self) -> None:
    """Has the answers that are due given by another server."""
    self._stop()
    for slot, episode in self._due():
      self._lost(slot, episode)

  def _lost(self, slot: int, episode: _Episode) -> None:
    """Plays an episode again whose worker is gone; once, as its last action may have been what killed it."""
    if episode.again:
      self._answer(slot, episode, Turn("", failure="the environment's process died, twice"))
      return
    episode.again = True
    self.counts["replays"] += 1
    self._request(slot, episode, dict(example=episode.example, seed=episode.seed, actions=episode.actions))

  def _take(self, slot: int, number: int, turns: list | None, seconds: float) -> None:
    episode = self._episodes.get(slot)
    if episode is None or episode.number != number:  # nobody waits for it any more
      return
    self.counts["seconds"] += seconds
    if turns is None:
      self._lost(slot, episode)
      return
    *before, turn = [Turn(*fields)._replace(anchor=_hashable(fields[4])) for fields in turns]
    if before and before != episode.turns[: len(before)]:
      turn = Turn("", failure="played again, the episode gave other turns; chance must come from its seed")
    self._answer(slot, episode, turn)

  def _answer(self, slot: int, episode: _Episode, turn: Turn) -> None:
    episode.number, episode.again = None, False
    episode.turns.append(turn)
    self.counts["steps"] += 1
    self.counts["failures"] += bool(turn.failure)
    self._answers.append((slot, turn))
    if turn.ended:
      del self._episodes[slot]
      self._write([slot, 0, dict(end=True)])


def _hashable(anchor: Hashable | list) -> Hashable:
  """Returns an anchor as it was: JSON has made lists of its tuples."""
  return tuple(map(_hashable, anchor)) if isinstance(anchor, list) else anchor


def _plain(value: np.generic | np.ndarray) -> int | float | bool | list:
  """Returns a number or an array of numpy's, which rows of a dataset have, as JSON's."""
  return value.tolist()
