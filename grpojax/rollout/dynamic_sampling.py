"""Dynamic sampling: draw prompts, sample and score them, and draw again until enough groups have contrast.

DAPO's dynamic sampling (https://arxiv.org/abs/2503.14476, section 3.2) keeps a group iff its accuracies
are mixed and draws more prompts until `rollout.prompts` groups are there.  The batch keeps its shape:
what is missing after `max_tries` is filled with groups that are not `valid` and count nowhere.
"""

import contextlib
from collections.abc import Callable

import jax
import numpy as np
from ml_collections import ConfigDict

from grpojax.rollout.curriculum import Outcomes
from grpojax.rollout.generate import ScoredStream
from grpojax.rollout.groups import concatenate, invalidate, lengths_of, mixed, outcomes_of, take
from grpojax.rollout.metrics import accuracy, contrast, describe_drawn
from grpojax.runtime.data_shards import SINGLE_PROCESS, ProcessShards
from grpojax.types import Groups, Prompts


def collect(
  config: ConfigDict, sample: Callable[[int], list[Groups]], shards: ProcessShards = SINGLE_PROCESS
) -> tuple[Groups, Outcomes, dict[str, float]]:
  """Collective: one step's groups round by round, the outcomes of all that were drawn, and metrics.

  `sample` gives this process's shard of the step's batch of this number, from 0, sampled and scored, and of
  the batches behind it that were sampled ahead.  Which groups count, the first P of all processes in order of
  drawing, is what one process would have it; so all processes try equally often.
  """
  drawn, counts, missing = [], [], 1
  while missing and len(drawn) < (config.max_tries if config.enabled else 1):
    batches = sample(len(drawn))
    drawn += batches
    counts += [shards.gather(mixed(groups.scored)) for groups in batches]
    target, found = len(counts[-1]), sum(int(x.sum()) for x in counts)
    missing = max(0, target - found)
  seen = [shards.gather((outcomes_of([g]), lengths_of([g]))) for g in drawn]
  outcomes, lengths = jax.tree.map(lambda *x: np.concatenate(x), *seen)
  metrics = {"num_tokens": int(lengths.sum())} | contrast(outcomes)
  if not config.enabled:
    return drawn[0], outcomes, metrics

  counts = np.concatenate(counts)
  needed = _needed(counts, target)
  metrics |= {
    "dynamic_sampling/tries": -(-needed // target),
    "dynamic_sampling/accuracy": accuracy(outcomes),
    "dynamic_sampling/keep_rate": found / len(counts),
    "dynamic_sampling/missing_groups": missing,
    "dynamic_sampling/surplus_groups": max(0, found - target),
    "dynamic_sampling/wasted_tokens": int(lengths[needed:].sum()),
  }
  mine, size = concatenate(drawn), len(drawn[0].prompts.id)
  metrics |= describe_drawn(mine, shards)
  draw, row = np.divmod(_wanted(counts, target), target)
  owner, row = np.divmod(row, size)
  kept = _redistributed(shards, mine, owner, draw * size + row)
  return invalidate(kept, shards.local(np.arange(target) < found)), outcomes, metrics


def collect_streaming(
  config: ConfigDict, stream: ScoredStream, draw: Callable[[], Prompts], rewind: Callable[[int], None]
) -> tuple[Groups, Outcomes, dict[str, float]]:
  """Collective: the groups that `collect` returns, without rounds: prompts are submitted as places free up.

  A group counts once all that were drawn before it are there, or short responses would be preferred; what the
  sampler has begun beyond the last group needed is cancelled.  `rewind` gives so many draws back to the
  prompt stream.
  """
  shards, target, ended, found = stream.context.shards, stream.size, {}, 0
  known = np.full((shards.count, config.max_tries * target), -1, np.int8)  # 1: mixed, 0: not, -1: not there
  with contextlib.closing(iter(stream)) as scored:
    for answered in scored:
      for numbers, groups in answered:
        ended |= {number: take(groups, np.array([i])) for i, number in enumerate(numbers.tolist())}
        known[shards.rank, numbers] = mixed(groups.scored)
      known = stream.gather(known[shards.rank][None])
      counts = known.max(axis=0)
      there = len(counts) if counts.min() >= 0 else int(counts.argmin())  # all of the first so many
      found = int(counts[:there].sum())
      if found >= target:
        break
      if stream.hungry and len(stream.batches) < config.max_tries:
        stream.submit(draw())
  drawn = _needed(counts[:there] > 0, target)
  tries = -(-drawn // target)
  rewind(len(stream.batches) - tries)
  return _gathered(shards, ended, known[:, :drawn], target, stream.context.counters)


def _gathered(
  shards: ProcessShards, ended: dict[int, Groups], known: np.ndarray, target: int, counters
) -> tuple[Groups, Outcomes, dict[str, float]]:
  """Collective: the step's groups of the `ended` ones that were needed; known [shards, drawn] as above."""
  holder, wanted = known.argmax(axis=0), _wanted(known.max(axis=0) > 0, target)
  order = np.argsort(holder, kind="stable").argsort()  # each group's place where shard follows shard
  place = order - np.searchsorted(np.sort(holder), holder)  # and in its own shard
  mine = concatenate([ended[number] for number in np.flatnonzero(holder == shards.rank).tolist()])
  of_all = shards.gather_unequal((outcomes_of([mine]), lengths_of([mine])))
  outcomes, lengths = jax.tree.map(lambda x: x[order], of_all)
  found = int((known.max(axis=0) > 0).sum())
  metrics = _streaming_metrics(outcomes, lengths, mine.rollout.length.shape[1], found, target, counters)
  metrics |= describe_drawn(mine, shards)
  kept = _redistributed(shards, mine, holder[wanted], place[wanted])
  return invalidate(kept, shards.local(np.arange(target) < found)), outcomes, metrics


def _streaming_metrics(
  outcomes: Outcomes, lengths: np.ndarray, group_size: int, found: int, target: int, counters
) -> dict[str, float]:
  """Returns what streaming dynamic sampling took, of the groups that were needed and of all begun."""
  drawn = len(lengths)
  tries = -(-drawn // target)
  return contrast(outcomes) | {
    "num_tokens": counters["rollout/sampled_tokens"],
    "dynamic_sampling/tries": tries,
    "dynamic_sampling/accuracy": accuracy(outcomes),
    "dynamic_sampling/keep_rate": found / drawn,
    "dynamic_sampling/missing_groups": target - found,
    "dynamic_sampling/cancelled_groups": counters["rollout/responses"] // group_size - drawn,
    "dynamic_sampling/skipped_prompts": tries * target - drawn,  # drawn, and not needed
    "dynamic_sampling/wasted_tokens": counters["rollout/sampled_tokens"] - int(lengths.sum()),
  }


def _needed(mixed: np.ndarray, target: int) -> int:
  """Returns how many groups it takes, in order of drawing, until `target` are mixed; at most all."""
  enough = np.flatnonzero(np.cumsum(mixed) >= target)
  return int(enough[0]) + 1 if enough.size else len(mixed)


def _wanted(mixed: np.ndarray, target: int) -> np.ndarray:
  """Returns the numbers of the first `target` mixed groups; what is missing is filled from the last drawn."""
  fill = np.arange(len(mixed) - target, len(mixed))
  return np.concatenate([np.flatnonzero(mixed), fill])[:target]


def _redistributed(shards: ProcessShards, mine: Groups, owner: np.ndarray, row: np.ndarray) -> Groups:
  """Collective: this process's shard of the groups in these rows of these shards, in their order.

  Of several processes the groups come without `example`: only numbers travel.
  """
  if shards.count == 1:
    return take(mine, row)
  bare = mine._replace(prompts=mine.prompts._replace(example=None))
  return shards.redistribute(bare, owner, row)
