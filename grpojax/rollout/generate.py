"""Prompts -> scored groups, pulled from one stream by training, dynamic sampling and the survey."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from grpojax.rollout.context import RolloutContext, rows_of, take_prompts
from grpojax.rollout.groups import concatenate, gather_prompts, take
from grpojax.rollout.sampler.engine import ALL, PromptQueue
from grpojax.rollout.score import Asked, as_answered, ask, score
from grpojax.types import Groups, Prompts


class PendingRollout(NamedTuple):
  """Prompts on their way through the sampler."""

  step: int  # the training step that the prompts were drawn for
  version: int  # of the policy that began to sample: training steps behind its parameters
  prompts: Prompts
  params: dict  # trained parameters of that policy
  decode_state: Any  # what the engine's stream continues; None: not started
  newest: int  # version of the policy that samples now: another, if it was taken up in the middle
  newest_params: dict


def start(
  context: RolloutContext, own: dict, params: dict, prompts: Prompts, step: int, draw: int, version: int,
  steps: int = ALL,
) -> PendingRollout:  # fmt: skip
  """Starts to sample and waits for nothing; `draw` numbers the draws of a step, from 0.

  `own` are the `synced` parameters.  Under staleness it takes so many decode steps in one piece, because the
  host is elsewhere.
  """
  ahead = bool(context.config.staleness)
  with context.timer.phase("rollout", "" if ahead else "update_wait"):
    state = context.engine.start(own, prompts, draw_key(context, step, draw), steps if ahead else None)
    if not ahead:
      jax.block_until_ready(params)
  return PendingRollout(step, version, prompts, params, state, version, params)


def go_on(
  context: RolloutContext, own: dict, pending: PendingRollout, params: dict, newest: int, steps: int
) -> PendingRollout:
  """Lets what is pending take so many more decode steps by another policy, and waits for nothing.

  `own` are that policy's `synced` parameters.
  """
  anew = pending.prompts if context.config.rollout.in_flight_kv == "recomputed" else None
  with context.timer.phase("rollout"):
    state = context.engine.go_on(pending.decode_state, own, steps, anew)
  return pending._replace(decode_state=state, newest=newest, newest_params=params)


def synced(context: RolloutContext, frozen: dict, params: dict) -> dict:
  """Returns the sampler's parameters, of trained ones."""
  engine, timer, ahead = context.engine, context.timer, bool(context.config.staleness)
  own = frozen | params
  # What the device does first, if nothing is sampled ahead, is the update of the step before; `Session.push`
  # puts these seconds into that step's record.
  behind = "" if ahead else "update_wait"
  if engine.sync or engine.send:
    with timer.phase("reshard", behind):
      own = engine.sync_weights(own)
      if not ahead:  # the sampling waits for the copy, and nothing else does
        jax.block_until_ready(own)
  return own


def draw_key(context: RolloutContext, step: int, draw: int):
  """Returns the key of a draw: the same step and draw sample the same completions, also in a resumed run."""
  return jax.random.fold_in(jax.random.fold_in(jax.random.key(context.config.seed), step), draw)


class ScoredStream:
  """Scored groups as they end, while the device samples the rest; `submit` adds prompts behind them.

  Iterating gives lists of (numbers [n] in order of submission, Groups of these n): those that have ended and
  whose rewards have answered, an empty list where there are none.  After each list prompts may be submitted;
  when that is depends on the sampler alone, so that no number depends on how fast answers come.  Who needs no
  more groups stops iterating: what the sampler has begun is cancelled, and counted.

  Several processes iterate together: numbers count the prompts of all, and each has as many lists, of the
  groups that it has sampled and scored.
  """

  def __init__(self, context: RolloutContext, pending: PendingRollout):
    self.context, self.pending = context, pending
    self.batches, self.queue = [pending.prompts], PromptQueue()  # the first batch is of this process
    self.size = len(pending.prompts.id) * context.shards.count  # P, of a batch

  @property
  def hungry(self) -> bool:
    """Returns True if no prompt waits for a place."""
    return self.queue.empty

  def submit(self, prompts: Prompts) -> None:
    """Collective: adds a batch of P prompts, this process's part of it given, sampled as places free up."""
    context = self.context
    if context.shards.count > 1:
      prompts = take_prompts(context.data, rows_of(context.data, context.shards.gather(prompts.id)))
    self.queue.submit(prompts, draw_key(context, self.pending.step, len(self.batches)))
    self.batches.append(prompts)

  def gather(self, x: np.ndarray) -> np.ndarray:
    """Collective: returns the arrays of all shards, joined; it waits for the segment that is under way."""
    with self.context.timer.phase("rollout"):
      return self.context.shards.gather(x)

  def _prompts(self, numbers: np.ndarray) -> Prompts:
    """Returns the prompts with these numbers."""
    batch, row = np.divmod(numbers, self.size)
    first = self.context.shards.rank * len(self.batches[0].id)
    return gather_prompts(self.batches, batch, np.where(batch == 0, row - first, row))

  def __iter__(self) -> Iterator[list[tuple[np.ndarray, Groups]]]:
    lists = lambda ended: as_answered(ended, together=self.context.shards.count > 1)
    with contextlib.closing(self._ended()) as ended, contextlib.closing(lists(ended)) as turns:
      for answered in turns:
        yield [(numbers, self._graded(asked)) for numbers, asked in answered]

  def _ended(self) -> Iterator[tuple[np.ndarray, Asked | None]]:
    """Yields numbers [n] and what was asked about these groups; or none and None, for prompts to come."""
    context = self.context
    stream = context.engine.stream(self.pending.decode_state, context.counters, self.queue)
    with contextlib.closing(stream) as ended:
      for numbers, rollout in context.timer.over("rollout", ended):
        if not numbers.size:
          yield numbers, None
          continue
        with context.timer.phase("reward"):
          asked = ask(context, self._prompts(numbers), rollout)
        yield numbers, asked

  def _graded(self, asked: Asked) -> Groups:
    with self.context.timer.phase("reward"):
      return Groups(asked.prompts, asked.rollout, score(self.context, asked))


def generate_and_score(context: RolloutContext, pending: PendingRollout) -> Groups:
  """Collective: all groups of what is pending, in order of the prompts."""
  order, parts = zip(*itertools.chain.from_iterable(ScoredStream(context, pending)), strict=True)
  groups = take(concatenate(parts), np.argsort(np.concatenate(order)))
  return groups._replace(scored=context.shards.broadcast_from_owner(groups.scored))


def score_together(context: RolloutContext, begun: list[PendingRollout]) -> list[Groups]:
  """Collective: the groups of each of these batches, in order; all are sampled before any reward is asked."""
  ended, size = [], len(begun[0].prompts.id)
  for one in begun:
    with context.timer.phase("rollout"):
      rollout, counters = context.engine.finish(one.decode_state)
    context.counters.update(counters)
    ended.append(Groups(one.prompts, rollout, None))
  groups = concatenate(ended)
  with context.timer.phase("reward"):
    scored = score(context, ask(context, groups.prompts, groups.rollout))
  groups = groups._replace(scored=context.shards.broadcast_from_owner(scored))
  return [take(groups, np.arange(i * size, (i + 1) * size)) for i in range(len(begun))]
