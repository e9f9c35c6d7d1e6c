"""The host's half of the samplers: sends work to the device ahead of time, and streams what has ended.

The decode loop of the continuous sampler runs in segments of a fixed number of steps.  The next segment is
on its way before the host looks at what the last one finished, so that both work at the same time.  What
happens depends on numbers of steps alone, never on a clock.  So several processes send the same: each knows
of the places of all, and fetches what ended in its own.
"""

import contextlib
import functools
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from grpojax.rollout.sampler import interruption
from grpojax.rollout.sampler.continuous import Counters, PromptCache, SlotState, Status
from grpojax.rollout.sampler.interruption import Interruption
from grpojax.runtime import data_shards, sharding
from grpojax.types import Prompts, Rollout

ALL = 2**30  # steps: more than any rollout takes


class PromptQueue:
  """Prompts that wait for a place in a running rollout, in order of submission; all of every process."""

  def __init__(self):
    self._batches = deque()  # (Prompts, key), the first of them taken up to _row
    self._row = 0
    self._taken = 0

  @property
  def empty(self) -> bool:
    """Returns whether no prompt waits."""
    return not self._batches

  def submit(self, prompts: Prompts, key) -> None:
    """Adds prompts; `key` is the random key of their samples."""
    self._batches.append((prompts, key))

  def take(self, free: np.ndarray, numbers: np.ndarray) -> tuple[Prompts, Any]:
    """Returns prompts [P] of one submission at the places `free`, elsewhere of length 0, and their key.

    `numbers` [P] gets the number of each: those that the rollout started with are 0 .. P - 1.
    """
    prompts, key = self._batches[0]
    rows = np.arange(self._row, min(self._row + len(free), len(prompts.id)))
    places = free[: len(rows)]
    numbers[places] = len(numbers) + self._taken + np.arange(len(rows))
    self._row, self._taken = self._row + len(rows), self._taken + len(rows)
    if self._row == len(prompts.id):
      self._batches.popleft()
      self._row = 0
    place = lambda x: _placed(np.zeros((len(numbers), *x.shape[1:]), x.dtype), places, x[rows])
    return Prompts(*map(place, prompts[:3]), []), key


class Engine(NamedTuple):
  """A sampler in two halves, `start` and `stream`, so that the host can do other work between them.

  Of several processes each starts with prompts of its own, [P / processes], whose numbers count those of all.
  """

  start: Callable  # (params, Prompts, key, steps=None) -> DecodeState, at once; steps of the first program,
  # ALL: to the end, None: a segment
  stream: Callable  # (DecodeState, Counter, PromptQueue or None) -> yields (numbers [n], Rollout [n, G, ...])
  sync: Callable | None = None  # the learner's parameters -> those of `start`; None: they are the same
  send: Callable | None = None  # what `sync` made -> where the sampler wants it; None: it is there
  streams: bool = False  # whether `stream` reads a PromptQueue
  programs: tuple[Callable | None, ...] = ()  # sync, and what runs after it, in order
  # (DecodeState, other params, steps, Prompts=None) -> DecodeState, at once; None: cannot
  go_on: Callable | None = None
  cancel: Callable | None = None  # (what `start` made) ends work of the host on it; None: there is none

  def sync_weights(self, params):
    """Returns the parameters that `start` takes, of the learner's."""
    made = self.sync(params) if self.sync else params
    return self.send(made) if self.send else made

  def finish(self, state) -> tuple[Rollout, Counter]:
    """Waits for all responses.  Returns the Rollout in order of its prompts, and counts of the work."""
    counters = Counter()
    numbers, parts = zip(*self.stream(state, counters), strict=True)
    if len(parts) == 1:
      return parts[0], counters
    order = np.argsort(np.concatenate(numbers))
    return jax.tree.map(lambda *x: np.concatenate(x)[order], *parts), counters

  def whole(self, params, prompts: Prompts, key) -> tuple[Rollout, Counter]:
    """Returns one rollout of parameters that `sync_weights` has made, and counts of the work."""
    return self.finish(self.start(params, prompts, key, ALL))

  def __call__(self, params, prompts: Prompts, key) -> tuple[Rollout, Counter]:
    return self.whole(self.sync_weights(params), prompts, key)


def static_engine(mesh: Mesh, sync: Callable | None, prefill: Callable, decode: Callable) -> Engine:
  """Returns an engine of the programs of `static_batch.py`: all responses end together."""

  def start(params, prompts: Prompts, key, steps: int | None = None) -> Rollout:
    tokens, length, ids, key = _on_device(mesh, prompts, key)
    return decode(params, prefill(params, tokens, length), key, ids)

  def stream(state: Rollout, counters: Counter, queue: None = None) -> Iterator[tuple[np.ndarray, Rollout]]:
    rollout = sharding.to_host(state)
    yield np.arange(len(rollout.length)), rollout

  return Engine(start, stream, sync, programs=(sync, prefill, decode))


def labelled(engine: Engine, c: Interruption | None) -> Engine:
  """Returns the engine whose rollouts say which of their tokens were injected."""
  if c is None:
    return engine

  def stream(*args) -> Iterator[tuple[np.ndarray, Rollout]]:
    with contextlib.closing(engine.stream(*args)) as ended:
      for numbers, rollout in ended:
        yield numbers, interruption.label(c, rollout)

  return engine._replace(stream=stream)


class DecodeState(NamedTuple):
  """A rollout of the continuous sampler on the device, after a segment that may still run.

  Where no segment follows only `out` and `status` are kept, and the parameters may be donated.
  """

  params: dict | None
  prompts: PromptCache | None
  slots: SlotState | None
  out: Rollout
  status: Status
  numbers: np.ndarray  # [P] of the prompt in each place of all processes; -1: the place is free
  lengths: tuple[jax.Array, ...] = ()  # [P, G] of the responses, wherever other parameters were taken up


def continuous_engine(
  mesh: Mesh, sync: Callable | None, begin: Callable, insert: Callable, advance: Callable,
  recompute: Callable, slots: int, segment: int,
) -> Engine:  # fmt: skip
  """Returns an engine of the programs of `continuous.py`, in segments of so many steps."""

  @functools.cache
  def on_device(steps: int):
    return sharding.everywhere(mesh, np.int32(steps))

  def send(params, prompts, state, out, numbers, steps: int = segment) -> DecodeState:
    state, out, status = advance(params, prompts, state, out, on_device(steps))
    kept = (None, None, None) if steps == ALL else (params, prompts, state)
    return DecodeState(*kept, out, status, numbers)

  def start(params, prompts: Prompts, key, steps: int | None = None) -> DecodeState:
    tokens, length, ids, key = _on_device(mesh, prompts, key)
    begun = begin(params, tokens, length, ids, key)
    return send(params, *begun, np.argsort(data_shards.places(mesh, len(ids)), axis=None), steps or segment)

  def go_on(state: DecodeState, params, steps: int, prompts: Prompts | None = None) -> DecodeState:
    """Takes up other parameters in the middle of all responses.

    Keys and values stay as they are, or are computed anew, if the `prompts` are given that were begun.
    """
    kept = state.prompts, state.slots
    if prompts is not None:
      kept = recompute(params, *kept, state.out, sharding.to_device(mesh, prompts.tokens))
    sent = send(params, *kept, state.out, state.numbers, steps)
    return sent._replace(lengths=(*state.lengths, state.out.length))

  def stream(state: DecodeState, counters: Counter, queue: PromptQueue | None = None) -> Iterator:
    """Yields groups as they end, and none when the queue is empty and a prompt of it could be read.

    A prompt of the queue is read when a place is free and fewer requests wait than there are slots.  The
    stream is over when all responses have ended and the queue is empty.  Closing it sends nothing more;
    `counters` gets all work that was sent.  Every process has as many lists, of groups in its own places.
    """
    feeds, queue = queue is not None, queue or PromptQueue()
    numbers, following, reads = state.numbers.copy(), state, False
    mine = data_shards.places(mesh, len(numbers))[data_shards.of(mesh).rank]
    try:
      while True:
        carried = state.prompts, state.slots, state.out
        if reads and not queue.empty:
          prompts, key = queue.take(np.flatnonzero(numbers < 0), numbers)
          own = Prompts(*(x[mine] for x in prompts[:3]), [])
          carried = insert(state.params, *carried, *_on_device(mesh, own, key))
        if state.slots:
          following = send(state.params, *carried, numbers.copy())
        status = jax.device_get(state.status)
        done = status.done & (numbers >= 0) & (numbers == state.numbers)
        rows = np.flatnonzero(done[mine])
        ended, numbers[done] = numbers[mine[rows]], -1
        reads = status.waiting < slots and bool((numbers < 0).any())
        if done.any() or (feeds and reads and queue.empty):
          yield ended, _by_policy(_rows(state.out, rows), state.lengths, rows)
        if not status.busy and (numbers < 0).all() and queue.empty:
          return
        state = following
    finally:
      counters.update(_counts(jax.device_get(following.status).counters, slots))

  return Engine(start, stream, sync, streams=True, programs=(sync, begin, insert, advance), go_on=go_on)


def _placed(x: np.ndarray, rows: np.ndarray, new: np.ndarray) -> np.ndarray:
  x[rows] = new
  return x


def _rows(out: Rollout, rows: np.ndarray) -> Rollout:
  """Fetches these rows; nothing is waited for if there are none."""
  if not rows.size:
    return jax.tree.map(lambda x: np.zeros((0, *x.shape[1:]), x.dtype), out)
  out = sharding.to_host(out)
  return out if len(rows) == len(out.length) else jax.tree.map(lambda x: x[rows], out)


def _by_policy(rollout: Rollout, lengths: tuple[jax.Array, ...], rows: np.ndarray) -> Rollout:
  """Returns these rows with how many other policies had been taken up before each token, if any was."""
  if not lengths:
    return rollout
  at = np.arange(rollout.tokens.shape[-1])
  after = [at >= sharding.to_host(length)[rows][..., None] for length in lengths]
  return rollout._replace(version=np.sum(after, axis=0, dtype=np.int32))


def _on_device(mesh: Mesh, prompts: Prompts, key) -> tuple:
  """Returns tokens, length, id and key, where the programs want them."""
  arrays = sharding.to_device(mesh, (prompts.tokens, prompts.length, prompts.id))
  return *arrays, sharding.everywhere(mesh, key)


def _counts(work: Counters, slots: int) -> dict[str, int]:
  counts = dict(
    decode_steps=work.steps, slot_steps=work.steps * slots, fed_slot_steps=work.decoded_tokens,
    prefill_columns=work.prefill_columns, prompt_tokens=work.prompt_tokens, responses=work.responses,
    sampled_tokens=work.decoded_tokens + work.responses,
  )  # fmt: skip
  return {f"rollout/{name}": int(n) for name, n in counts.items()}
