"""One step's worth of scored groups: draw prompts, sample, score; refill if dynamic sampling asks.

DAPO's dynamic sampling (https://arxiv.org/abs/2503.14476, section 3.2) keeps a group iff its accuracies
are mixed and draws more prompts until `rollout.prompts` groups are there.  The batch keeps its shape:
what is missing after `max_tries` is filled with groups that are not `valid` and count nowhere.
"""

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from grpojax.rollout.curriculum import Outcomes
from grpojax.runtime.data_shards import SINGLE_PROCESS, ProcessShards
from grpojax.types import Prompts, Rollout, Scored


class Groups(NamedTuple):
  """P scored groups on this host, numpy throughout."""

  prompts: Prompts
  rollout: Rollout
  scored: Scored


def collect(
  config: ConfigDict,
  draw: Callable[[], Prompts],
  ask: Callable[[Prompts, int], tuple[Rollout, Scored]],
  shards: ProcessShards = SINGLE_PROCESS,
) -> tuple[Groups, Outcomes, dict[str, float]]:
  """Returns one step's groups, the outcomes of all that were drawn, and what collecting them took.

  `draw` gives this process's share of the next P prompts, `ask` samples and scores them; its number
  parts the draws of a prompt that occurs twice in a step.  Collective: which groups count, the first P of
  all processes in order of drawing, as one process would have it; so all try equally often.
  """
  drawn, counts, missing = [], [], 1
  while missing and len(drawn) < (config.max_tries if config.enabled else 1):
    prompts = draw()
    drawn.append(Groups(prompts, *ask(prompts, len(drawn))))
    counts.append(shards.gather(mixed(drawn[-1].scored)))
    target, found = len(counts[-1]), sum(int(x.sum()) for x in counts)
    missing = max(0, target - found)
  outcomes, lengths = outcomes_of(drawn), np.concatenate([shards.gather(_lengths([g])) for g in drawn])
  stats = {"num_tokens": int(lengths.sum())} | contrast(outcomes, shards)
  if not config.enabled:
    return drawn[0], outcomes, stats

  counts = np.concatenate(counts)
  stats |= {
    "dynamic_sampling/tries": len(drawn),
    "dynamic_sampling/accuracy": accuracy(outcomes, shards),
    "dynamic_sampling/keep_rate": found / len(counts),
    "dynamic_sampling/missing_groups": missing,
    "dynamic_sampling/surplus_groups": max(0, found - target),
    "dynamic_sampling/wasted_tokens": int(lengths[_needed(counts, target) :].sum()),
  }
  fill = np.arange(len(counts) - target, len(counts))
  wanted = np.concatenate([np.flatnonzero(counts), fill])[:target]
  real = np.arange(target) < found
  return _filled(_dealt_out(shards, drawn, wanted), shards.local(real)), outcomes, stats


def feed(
  config: ConfigDict, first: Prompts, draw: Callable, graded: Callable, unread: Callable, counts: Counter
) -> tuple[Groups, Outcomes, dict[str, float]]:
  """The groups that `collect` returns, without rounds: prompts are drawn as slots free up.  One process.

  A group counts once all that were drawn before it are there, or short responses would be preferred;
  what the sampler has begun beyond the last one needed is cancelled.  `first` are being sampled, `draw`
  takes the number of a draw, `graded` a function that draws, `unread` gives so many draws back.
  """
  target, draws, ended, order, found = len(first.id), 1, {}, [], 0

  def more():
    nonlocal draws
    if draws == config.max_tries:
      return None
    draws += 1
    return draw(draws - 1)

  with contextlib.closing(graded(more)) as finished:
    for numbers, groups in finished:
      ended |= {number: take(groups, np.array([i])) for i, number in enumerate(numbers.tolist())}
      while found < target and len(order) in ended:
        order.append(ended[len(order)])
        found += int(mixed(order[-1].scored)[0])
      if found == target:
        break
  tries = -(-len(order) // target)
  unread(draws - tries)
  outcomes, G = outcomes_of(order), order[0].rollout.length.size
  stats = contrast(outcomes) | {
    "num_tokens": counts["rollout/sampled_tokens"],
    "dynamic_sampling/tries": tries,
    "dynamic_sampling/accuracy": accuracy(outcomes),
    "dynamic_sampling/keep_rate": found / len(order),
    "dynamic_sampling/missing_groups": target - found,
    "dynamic_sampling/cancelled_groups": counts["rollout/responses"] // G - len(order),
    "dynamic_sampling/skipped_prompts": tries * target - len(order),  # drawn, and not needed
    "dynamic_sampling/wasted_tokens": counts["rollout/sampled_tokens"] - int(_lengths(order).sum()),
  }
  drawn = concatenate(order)
  fill = np.arange(len(order) - target, len(order))
  wanted = np.concatenate([np.flatnonzero(mixed(drawn.scored)), fill])[:target]
  return _filled(take(drawn, wanted), np.arange(target) < found), outcomes, stats


def _needed(mixed: np.ndarray, target: int) -> int:
  """How many groups it takes, in order of drawing, until `target` are mixed; all if they are fewer."""
  enough = np.flatnonzero(np.cumsum(mixed) >= target)
  return int(enough[0]) + 1 if enough.size else len(mixed)


def _lengths(groups: list[Groups]) -> np.ndarray:
  """Tokens of each group."""
  return np.concatenate([g.rollout.length.sum(1) for g in groups])


def numbered(batches: list[Prompts], numbers: np.ndarray) -> Prompts:
  """The prompts with these numbers, which go on from batch to batch."""
  of, row = np.divmod(numbers, len(batches[0].id))
  fields = ([getattr(batches[b], f)[i] for b, i in zip(of, row, strict=True)] for f in Prompts._fields)
  tokens, length, ids, example = fields
  return Prompts(np.stack(tokens), np.stack(length), np.stack(ids), example)


def outcomes_of(drawn: list[Groups]) -> Outcomes:
  """Every group's number of right and of valid completions."""
  right = [np.where(g.scored.valid, g.scored.accuracy, 0).sum(1, dtype=np.float32) for g in drawn]
  count = [g.scored.valid.sum(1, dtype=np.float32) for g in drawn]
  return Outcomes(*map(np.concatenate, ([g.prompts.id for g in drawn], right, count)))


def accuracy(outcomes: Outcomes, shards: ProcessShards = SINGLE_PROCESS) -> float:
  """Of all valid completions that were drawn."""
  right, count = (shards.sum(x.sum()) for x in (outcomes.right, outcomes.count))
  return right / max(count, 1)


def contrast(outcomes: Outcomes, shards: ProcessShards = SINGLE_PROCESS) -> dict[str, float]:
  """Of all groups that were drawn, kept or not: the shares that are all right, all wrong, and neither."""
  graded = outcomes.count > 0
  right, wrong = graded & (outcomes.right == outcomes.count), graded & (outcomes.right == 0)
  which = {"all_right": right, "all_wrong": wrong, "mixed": graded & ~right & ~wrong}
  drawn = max(shards.sum(graded.sum()), 1)
  return {f"prompts/{name}": shards.sum(x.sum()) / drawn for name, x in which.items()}


def mixed(scored: Scored) -> np.ndarray:
  """[P] bool: accuracies differ among the valid samples.  On accuracy, not on the shaped reward."""
  best = np.where(scored.valid, scored.accuracy, -np.inf).max(axis=1)
  worst = np.where(scored.valid, scored.accuracy, np.inf).min(axis=1)
  return best > worst


def describe(groups: Groups, shards: ProcessShards = SINGLE_PROCESS) -> dict[str, float]:
  """Rewards and lengths of one step, over its valid samples on all processes."""
  _, rollout, scored = groups
  own = dict(
    valid=scored.valid, reward=scored.reward, accuracy=scored.accuracy,
    length=rollout.length, ended=rollout.ended,
  ) | {f"part {name}": part for name, part in scored.parts.items()}  # fmt: skip
  own = shards.gather(own)
  valid = own.pop("valid")
  x = {name: values[valid].astype(np.float64) for name, values in own.items()}
  ended = x["ended"] > 0
  seen = {
    "reward": _mean(x["reward"]),
    "reward_std": _mean(_group_std(own["reward"], valid)),
    "accuracy": _mean(x["accuracy"]),
    "completions/mean_length": _mean(x["length"]),
    "completions/min_length": x["length"].min(initial=np.inf),
    "completions/max_length": x["length"].max(initial=-np.inf),
    "completions/clipped_ratio": 1 - _mean(x["ended"]),
    "completions/mean_terminated_length": _mean(x["length"][ended]),
  }
  for name in scored.parts:
    part = x[f"part {name}"]
    seen[f"rewards/{name}/mean"] = _mean(part)
    seen[f"rewards/{name}/std"] = _mean((part - _mean(part)) ** 2) ** 0.5
  return seen


def _group_std(reward: np.ndarray, valid: np.ndarray) -> np.ndarray:
  """Standard deviation (ddof 0) of each group's valid rewards; groups without any are left out."""
  return np.array([np.std(r[v]) for r, v in zip(reward, valid, strict=True) if v.any()])


def _mean(x: np.ndarray) -> float:
  return float(x.mean()) if x.size else float("nan")


def _dealt_out(shards: ProcessShards, drawn: list[Groups], wanted: np.ndarray) -> Groups:
  """This process's share of the groups with these numbers, in order of drawing over all shares.

  Where there are several they come without `example`: only numbers travel.
  """
  mine = concatenate(drawn)
  if shards.count == 1:
    return take(mine, wanted)
  share = len(drawn[0].prompts.id)
  draw, row = np.divmod(wanted, share * shards.count)
  owner, row = np.divmod(row, share)
  bare = mine._replace(prompts=mine.prompts._replace(example=None))
  return shards.redistribute(bare, owner, draw * share + row)


def _filled(groups: Groups, real: np.ndarray) -> Groups:
  """The groups that are not `real` [P] only fill the shape."""
  scored = groups.scored
  return groups._replace(scored=scored._replace(valid=scored.valid & real[:, None]))


def take(groups: Groups, rows: np.ndarray) -> Groups:
  """The groups of these rows."""
  pick = lambda x: x[rows] if isinstance(x, np.ndarray) else x
  taken = jax.tree.map(pick, groups._replace(prompts=groups.prompts._replace(example=None)))
  example = [groups.prompts.example[i] for i in rows]
  return taken._replace(prompts=taken.prompts._replace(example=example))


def concatenate(parts: list[Groups]) -> Groups:
  """All groups of all parts, in order."""
  bare = [p._replace(prompts=p.prompts._replace(example=None)) for p in parts]
  joined = jax.tree.map(lambda *xs: np.concatenate(xs), *bare)
  example = [e for p in parts for e in p.prompts.example]
  return joined._replace(prompts=joined.prompts._replace(example=example))


def summed(counts: Counter, shards: ProcessShards) -> dict[str, int]:
  """Collective: the sum of each host count; the sampler's are of all devices already."""
  own = {key: n for key, n in sorted(counts.items()) if not key.startswith("rollout/")}
  return dict(counts) | {key: shards.sum(n) for key, n in own.items()}  # of Counters `|` drops what is 0
