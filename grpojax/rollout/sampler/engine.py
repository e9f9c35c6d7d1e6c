"""The host's half of the samplers: sends work to the device ahead of time, and hands on what has finished.

The loop of the continuous sampler runs in segments of a fixed number of steps.  The next one is on its way
before the host looks at what the last one finished, so that both work at the same time.  What happens
depends on numbers of steps alone, never on a clock.
"""

import functools
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from grpojax.rollout.sampler.continuous import Places, Report, State, Work
from grpojax.runtime import sharding
from grpojax.types import Prompts, Rollout

ALL = 2**30  # steps: more than any rollout takes


class Engine(NamedTuple):
  """In two halves, so that the host can do other work between them."""

  start: Callable  # (params, Prompts, key, whole) -> what is in flight; waits for nothing.  whole: uncut
  stream: Callable  # (flight, counts, PromptQueue or None) -> yields (numbers [n], Rollout [n, G, ...])
  ready: Callable | None = None  # the learner's parameters -> those of `start`; None: they are the same
  streams: bool = False  # True if a PromptQueue is read: its prompts follow those that have ended
  programs: tuple[Callable, ...] = ()  # what it is made of, in order

  def finish(self, flight) -> tuple[Rollout, dict[str, int]]:
    """Waits for all of it: the Rollout, counts of what it took."""
    counts = Counter()
    ended = [one for one in self.stream(flight, counts) if one[0].size]
    rows, parts = zip(*ended, strict=True)
    if len(parts) == 1:
      return parts[0], counts
    order = np.argsort(np.concatenate(rows))
    return jax.tree.map(lambda *x: np.concatenate(x)[order], *parts), counts

  def sync_weights(self, params):
    """What `start` takes, of the learner's parameters."""
    return self.ready(params) if self.ready else params

  def whole(self, own, prompts: Prompts, key) -> tuple[Rollout, dict[str, int]]:
    """One rollout of parameters that are its `own`."""
    return self.finish(self.start(own, prompts, key, whole=True))

  def __call__(self, params, prompts: Prompts, key) -> tuple[Rollout, dict[str, int]]:
    return self.whole(self.sync_weights(params), prompts, key)


def plain(mesh: Mesh, ready: Callable | None, prefill: Callable, decode: Callable) -> Engine:
  """Of the programs of `generate.py`; all rows end together."""

  def start(params, prompts: Prompts, key, whole: bool = True) -> Rollout:
    tokens, length, ids, key = _on_device(mesh, prompts, key)
    return decode(params, prefill(params, tokens, length), key, ids)

  def stream(flight: Rollout, counts: Counter, queue=None) -> Iterator[tuple[np.ndarray, Rollout]]:
    rollout = sharding.to_host(flight)
    yield np.arange(len(rollout.length)), rollout

  return Engine(start, stream, ready, programs=(ready, prefill, decode))


class Flight(NamedTuple):
  """A rollout of the continuous sampler, after a segment that may still run.

  Where no segment follows nothing is kept that only the device needs; the parameters may be donated.
  """

  params: dict | None
  places: Places | None
  state: State | None
  out: Rollout
  report: Report
  at: np.ndarray  # [P] which prompt is in each place of this process, in order of drawing


def continuous(
  mesh: Mesh, ready: Callable | None, begin: Callable, insert: Callable, advance: Callable, slots: int,
  segment: int,
) -> Engine:  # fmt: skip
  """Of the programs of `slots.py`, in segments of so many steps."""

  @functools.cache
  def steps(whole: bool):
    return sharding.everywhere(mesh, np.int32(ALL if whole else segment))

  def sent(params, places, state, out, at, whole: bool) -> Flight:
    state, out, report = advance(params, places, state, out, steps(whole))
    kept = (None, None, None) if whole else (params, places, state)
    return Flight(*kept, out, report, at)

  def start(params, prompts: Prompts, key, whole: bool = False) -> Flight:
    tokens, length, ids, key = _on_device(mesh, prompts, key)
    return sent(params, *begin(params, tokens, length, ids, key), np.arange(len(prompts.id)), whole)

  def stream(flight: Flight, counts: Counter, queue: "PromptQueue | None" = None) -> Iterator:
    """Takes prompts of `queue` as soon as fewer requests wait than there are slots.

    While the queue could be taken from and is empty, the consumer gets an empty array of numbers, to submit
    more; the stream ends when all requests have ended and the queue is still empty.  Who no longer needs
    what is under way closes the iterator: nothing more is sent.
    """
    queue = queue or PromptQueue()
    queue.number, at, few, following = len(flight.at), flight.at.copy(), False, flight
    nothing = np.zeros(0, int), None
    try:
      while True:
        carried = flight.places, flight.state, flight.out
        free = np.flatnonzero(at < 0)
        if few and free.size and queue.empty:
          yield nothing
        taken = queue.take(free, at) if few and free.size else None
        if taken:
          carried = insert(flight.params, *carried, *_on_device(mesh, *taken))
        if flight.state:
          following = sent(flight.params, *carried, at.copy(), whole=False)
        report = _fetched(flight.report)
        rows = np.flatnonzero(report.done & (at >= 0) & (at == flight.at))
        if rows.size:
          numbers, at[rows] = at[rows], -1
          yield numbers, _rows(sharding.to_host(flight.out), rows)
        few = report.waiting < slots
        if not report.busy and (at < 0).all() and queue.empty:
          yield nothing
          if queue.empty:
            return
        flight = following
    finally:
      counts.update(_counts(_fetched(following.report).work, slots))

  return Engine(start, stream, ready, streams=True, programs=(ready, begin, insert, advance))


class PromptQueue:
  """Batches of prompts that wait for places, in order of submission."""

  def __init__(self):
    self.batches, self.row, self.number = deque(), 0, 0  # rows of the first batch taken; the next number

  @property
  def empty(self) -> bool:
    """True if no prompt waits."""
    return not self.batches

  def submit(self, prompts: Prompts, key) -> None:
    """Adds P prompts, whose draws have this key."""
    self.batches.append((prompts, key))

  def take(self, free: np.ndarray, at: np.ndarray) -> tuple[Prompts, Any] | None:
    """Returns prompts of one batch for the places `free`, with their key; notes their numbers in `at`."""
    if self.empty:
      return None
    prompts, key = self.batches[0]
    rows = np.arange(self.row, min(self.row + len(free), len(prompts.id)))
    to = free[: len(rows)]
    place = lambda x: _placed(np.zeros_like(x), to, x[rows])
    at[to] = self.number + np.arange(len(rows))
    self.number, self.row = self.number + len(rows), self.row + len(rows)
    if self.row == len(prompts.id):
      self.batches.popleft()
      self.row = 0
    return Prompts(*map(place, prompts[:3]), []), key


def _placed(x: np.ndarray, rows: np.ndarray, new: np.ndarray) -> np.ndarray:
  x[rows] = new
  return x


def _rows(rollout: Rollout, rows: np.ndarray) -> Rollout:
  return rollout if len(rows) == len(rollout.length) else jax.tree.map(lambda x: x[rows], rollout)


def _on_device(mesh: Mesh, prompts: Prompts, key) -> tuple:
  """tokens, length, id and key, where the programs want them."""
  arrays = sharding.to_device(mesh, (prompts.tokens, prompts.length, prompts.id))
  return *arrays, sharding.everywhere(mesh, key)


def _fetched(report: Report) -> Report:
  """On the host, `done` of this process's places."""
  return Report(sharding.to_host(report.done), *jax.device_get(report[1:]))


def _counts(work: Work, slots: int) -> dict[str, int]:
  counts = dict(
    decode_steps=work.steps, slot_steps=work.steps * slots, fed_slot_steps=work.fed,
    prefill_columns=work.columns, prompt_tokens=work.asked, responses=work.begun,
    sampled_tokens=work.fed + work.begun,
  )  # fmt: skip
  return {f"rollout/{name}": int(n) for name, n in counts.items()}
