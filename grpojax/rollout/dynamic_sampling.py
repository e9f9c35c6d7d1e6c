"""Dynamic sampling: draw prompts, sample and score them, and draw again until enough groups have contrast.

DAPO's dynamic sampling (https://arxiv.org/abs/2503.14476, section 3.2) keeps a group iff its accuracies
are mixed and draws more prompts until `rollout.prompts` groups are there.  The batch keeps its shape:
what is missing after `max_tries` is filled with groups that are not `valid` and count nowhere.
"""

import contextlib
from collections.abc import Callable

import numpy as np
from ml_collections import ConfigDict

from grpojax.rollout.curriculum import Outcomes
from grpojax.rollout.generate import ScoredStream
from grpojax.rollout.groups import concatenate, invalidate, lengths_of, mixed, outcomes_of, take
from grpojax.rollout.metrics import accuracy, contrast, describe_drawn
from grpojax.runtime.data_shards import SINGLE_PROCESS, ProcessShards
from grpojax.types import Groups, Prompts


def collect(
  config: ConfigDict,
  draw: Callable[[], Prompts],
  generate: Callable[[Prompts, int], Groups],
  shards: ProcessShards = SINGLE_PROCESS,
) -> tuple[Groups, Outcomes, dict[str, float]]:
  """Collective: one step's groups round by round, the outcomes of all that were drawn, and metrics.

  `draw` gives this process's shard of the next P prompts; `generate` samples and scores them, and its
  number tells apart the draws of a prompt that occurs twice in a step.  Which groups count, the first P of
  all processes in order of drawing, is what one process would have it; so all processes try equally often.
  """
  drawn, counts, missing = [], [], 1
  while missing and len(drawn) < (config.max_tries if config.enabled else 1):
    drawn.append(generate(draw(), len(drawn)))
    counts.append(shards.gather(mixed(drawn[-1].scored)))
    target, found = len(counts[-1]), sum(int(x.sum()) for x in counts)
    missing = max(0, target - found)
  outcomes, lengths = outcomes_of(drawn), np.concatenate([shards.gather(lengths_of([g])) for g in drawn])
  metrics = {"num_tokens": int(lengths.sum())} | contrast(outcomes, shards)
  if not config.enabled:
    return drawn[0], outcomes, metrics

  counts = np.concatenate(counts)
  metrics |= {
    "dynamic_sampling/tries": len(drawn),
    "dynamic_sampling/accuracy": accuracy(outcomes, shards),
    "dynamic_sampling/keep_rate": found / len(counts),
    "dynamic_sampling/missing_groups": missing,
    "dynamic_sampling/surplus_groups": max(0, found - target),
    "dynamic_sampling/wasted_tokens": int(lengths[_needed(counts, target) :].sum()),
  }
  metrics |= describe_drawn(concatenate(drawn), shards)
  kept = _redistributed(shards, drawn, _wanted(counts, target))
  return invalidate(kept, shards.local(np.arange(target) < found)), outcomes, metrics


def collect_streaming(
  config: ConfigDict, stream: ScoredStream, draw: Callable[[], Prompts], rewind: Callable[[int], None]
) -> tuple[Groups, Outcomes, dict[str, float]]:
  """Returns the groups that `collect` returns, without rounds: prompts are submitted as places free up.

  One process.  A group counts once all that were drawn before it are there, or short responses would be
  preferred; what the sampler has begun beyond the last group needed is cancelled.  `rewind` gives so many
  draws back to the prompt stream.
  """
  target, ended, order, found = len(stream.batches[0].id), {}, [], 0
  with contextlib.closing(iter(stream)) as scored:
    for answered in scored:
      for numbers, groups in answered:
        ended |= {number: take(groups, np.array([i])) for i, number in enumerate(numbers.tolist())}
      while found < target and len(order) in ended:
        order.append(ended[len(order)])
        found += int(mixed(order[-1].scored)[0])
      if found == target:
        break
      if stream.hungry and len(stream.batches) < config.max_tries:
        stream.submit(draw())
  tries = -(-len(order) // target)
  rewind(len(stream.batches) - tries)
  outcomes, groups = outcomes_of(order), concatenate(order)
  kept = take(groups, _wanted(mixed(groups.scored), target))
  metrics = _streaming_metrics(order, outcomes, found, target, stream.context.counters)
  metrics |= describe_drawn(groups)
  return invalidate(kept, np.arange(target) < found), outcomes, metrics


def _streaming_metrics(order: list[Groups], outcomes: Outcomes, found: int, target: int, counters) -> dict:
  """Returns what streaming dynamic sampling took, of the groups that were needed and of all begun."""
  tries, G = -(-len(order) // target), order[0].rollout.length.size
  return contrast(outcomes) | {
    "num_tokens": counters["rollout/sampled_tokens"],
    "dynamic_sampling/tries": tries,
    "dynamic_sampling/accuracy": accuracy(outcomes),
    "dynamic_sampling/keep_rate": found / len(order),
    "dynamic_sampling/missing_groups": target - found,
    "dynamic_sampling/cancelled_groups": counters["rollout/responses"] // G - len(order),
    "dynamic_sampling/skipped_prompts": tries * target - len(order),  # drawn, and not needed
    "dynamic_sampling/wasted_tokens": counters["rollout/sampled_tokens"] - int(lengths_of(order).sum()),
  }


def _needed(mixed: np.ndarray, target: int) -> int:
  """Returns how many groups it takes, in order of drawing, until `target` are mixed; at most all."""
  enough = np.flatnonzero(np.cumsum(mixed) >= target)
  return int(enough[0]) + 1 if enough.size else len(mixed)


def _wanted(mixed: np.ndarray, target: int) -> np.ndarray:
  """Returns the numbers of the first `target` mixed groups; what is missing is filled from the last drawn."""
  fill = np.arange(len(mixed) - target, len(mixed))
  return np.concatenate([np.flatnonzero(mixed), fill])[:target]


def _redistributed(shards: ProcessShards, drawn: list[Groups], wanted: np.ndarray) -> Groups:
  """Returns this process's shard of the groups with these numbers, in order of drawing over all shards.

  Of several processes the groups come without `example`: only numbers travel.
  """
  mine = concatenate(drawn)
  if shards.count == 1:
    return take(mine, wanted)
  size = len(drawn[0].prompts.id)
  draw, row = np.divmod(wanted, size * shards.count)
  owner, row = np.divmod(row, size)
  bare = mine._replace(prompts=mine.prompts._replace(example=None))
  return shards.redistribute(bare, owner, draw * size + row)
