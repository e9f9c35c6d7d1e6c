"""Metrics of one step's rollouts, the same on every process."""

from collections import Counter

import numpy as np

from grpojax.rollout.curriculum import Outcomes
from grpojax.rollout.turns import outcome
from grpojax.runtime.data_shards import SINGLE_PROCESS, ProcessShards
from grpojax.types import INJECTED, Groups


def describe(groups: Groups, shards: ProcessShards = SINGLE_PROCESS) -> dict[str, float]:
  """Collective: rewards and lengths (tokens) of one step, over its valid samples on all processes."""
  _, rollout, scored = groups
  own = dict(
    valid=scored.valid, reward=scored.reward, accuracy=scored.accuracy,
    length=rollout.length, ended=rollout.ended,
  ) | {f"part {name}": part for name, part in scored.parts.items()}  # fmt: skip
  own = shards.gather(own)
  valid = own.pop("valid")
  x = {name: _asked(values[valid].astype(np.float64)) for name, values in own.items()}
  ended = x["ended"] > 0
  metrics = {
    "reward": _mean(x["reward"]),
    "reward_std": _mean(_group_std(own["reward"], valid)),
    "accuracy": _mean(x["accuracy"]),
    "completions/mean_length": _mean(x["length"]),
    "completions/min_length": x["length"].min(initial=np.inf),
    "completions/max_length": x["length"].max(initial=-np.inf),
    "completions/clipped_ratio": 1 - _mean(x["ended"]),
    "completions/mean_terminated_length": _mean(x["length"][ended]),
  }
  for percent in (10, 25, 50, 75, 90):
    length = np.percentile(x["length"], percent) if x["length"].size else float("nan")
    metrics[f"completions/length_p{percent}"] = float(length)
  for name in scored.parts:
    part = x[f"part {name}"]
    metrics[f"rewards/{name}/mean"] = _mean(part)
    metrics[f"rewards/{name}/std"] = _mean((part - _mean(part)) ** 2) ** 0.5
  if rollout.kept is not None:
    metrics |= _describe_kept(groups, shards)
  if rollout.turns is not None:
    metrics |= outcome.describe(*shards.gather((rollout.turns, rollout.ending)))
  return metrics


def describe_interruptions(groups: Groups, shards: ProcessShards = SINGLE_PROCESS) -> dict[str, float]:
  """Collective: the share of completions whose thinking was cut, and the tokens that were injected."""
  injected = (groups.rollout.kind == INJECTED) & groups.scored.valid[..., None]
  completions = max(shards.sum(groups.scored.valid.sum()), 1)
  return {
    "interruption/share": shards.sum(injected.any(-1).sum()) / completions,
    "interruption/injected_tokens": shards.sum(injected.sum()),
  }


def _describe_kept(groups: Groups, shards: ProcessShards) -> dict[str, float]:
  """Collective: sizes of the sets that truncation kept; a token that was alone in one teaches nothing."""
  size = (groups.rollout.kept >= 0).sum(-1)
  on = (size > 0) & groups.scored.valid[..., None]
  tokens = max(shards.sum(on.sum()), 1)
  return {
    "kept_set/mean_size": shards.sum(size[on].sum()) / tokens,
    "kept_set/alone": shards.sum((size == 1)[on].sum()) / tokens,
  }


def describe_drawn(groups: Groups, shards: ProcessShards = SINGLE_PROCESS) -> dict[str, float]:
  """Collective: means over all valid completions that were drawn, kept or not, as drawn/NAME of `describe`.

  Processes may have drawn unequally many.
  """
  _, rollout, scored = groups
  total = lambda x, on: shards.sum(float(x[on].sum(dtype=np.float64)))

  def mean(x, on):
    on = on & ~np.isnan(x)
    return total(x, on) / count if (count := total(on, on)) else float("nan")

  ended, valid = scored.valid & rollout.ended, scored.valid
  found = {
    "reward": mean(scored.reward, valid),
    "accuracy": mean(scored.accuracy, valid),
    "completions/mean_length": mean(rollout.length, valid),
    "completions/clipped_ratio": mean(~rollout.ended, valid),
    "completions/mean_terminated_length": mean(rollout.length, ended),
  } | {f"rewards/{name}/mean": mean(part, valid) for name, part in scored.parts.items()}
  return {f"drawn/{name}": value for name, value in found.items()}


def accuracy(outcomes: Outcomes) -> float:
  """Returns the accuracy of all valid completions that were drawn."""
  return float(outcomes.right.sum()) / max(float(outcomes.count.sum()), 1.0)


def contrast(outcomes: Outcomes) -> dict[str, float]:
  """Returns, of all groups drawn, kept or not, the shares that are all right, all wrong, and neither."""
  graded = outcomes.count > 0
  right, wrong = graded & (outcomes.right == outcomes.count), graded & (outcomes.right == 0)
  which = {"all_right": right, "all_wrong": wrong, "mixed": graded & ~right & ~wrong}
  drawn = max(int(graded.sum()), 1)
  return {f"prompts/{name}": float(x.sum() / drawn) for name, x in which.items()}


def sum_counters(counters: Counter, shards: ProcessShards) -> dict[str, int]:
  """Collective: each host count, summed over shards; the sampler's counts are of all devices already."""
  own = {key: n for key, n in counters.items() if not key.startswith("rollout/")}
  return dict(counters) | shards.sum_each(own)


def _group_std(reward: np.ndarray, valid: np.ndarray) -> np.ndarray:
  """Returns the deviation (ddof 0) of each group's valid rewards; groups without any are left out."""
  return np.array([np.std(r[v]) for r, v in zip(reward, valid, strict=True) if v.any()])


def _asked(x: np.ndarray) -> np.ndarray:
  """Returns the numbers without those of completions on which a reward was not asked."""
  return x[~np.isnan(x)]


def _mean(x: np.ndarray) -> float:
  return float(x.mean()) if x.size else float("nan")
