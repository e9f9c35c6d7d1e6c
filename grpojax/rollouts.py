"""One step's worth of scored groups: draw prompts, sample, score; refill if dynamic sampling asks.

DAPO's dynamic sampling (https://arxiv.org/abs/2503.14476, section 3.2) keeps a group iff its accuracies
are mixed and draws more prompts until `rollout.prompts` groups are there.  The batch keeps its shape:
what is missing after `max_tries` is filled with groups that are not `valid` and count nowhere.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from grpojax.batch import Prompts, Rollout, Scored


class Groups(NamedTuple):
  """P scored groups on this host, numpy throughout."""

  prompts: Prompts
  rollout: Rollout
  scored: Scored


def collect(
  config: ConfigDict, draw: Callable[[], Prompts], ask: Callable[[Prompts], tuple[Rollout, Scored]]
) -> tuple[Groups, dict[str, float]]:
  """Returns one step's groups and what collecting them took.

  `draw` gives this process's share of the next P prompts, `ask` samples and scores them.  All
  processes try equally often: a program over the mesh needs all of them.
  """
  drawn, kept, missing = [], [], 1
  while missing and len(drawn) < (config.max_tries if config.enabled else 1):
    prompts = draw()
    drawn.append(Groups(prompts, *ask(prompts)))
    kept.append(_take(drawn[-1], np.flatnonzero(mixed(drawn[-1].scored))))
    found, target = sum(len(k.prompts.id) for k in kept), len(prompts.id)
    missing = _on_all(max(0, target - found))
  stats = {"num_tokens": _on_all(sum(int(g.rollout.length.sum()) for g in drawn))}
  if not config.enabled:
    return drawn[0], stats

  accuracy = np.concatenate([g.scored.accuracy[g.scored.valid] for g in drawn])
  stats |= {
    "dynamic_sampling/tries": len(drawn),
    "dynamic_sampling/accuracy": _on_all(accuracy.sum()) / max(_on_all(accuracy.size), 1),  # of all drawn
    "dynamic_sampling/keep_rate": _on_all(found) / _on_all(target * len(drawn)),
    "dynamic_sampling/missing_groups": missing,
    "dynamic_sampling/surplus_groups": _on_all(max(0, found - target)),
  }
  return _fill(_concatenate([*kept, _take(drawn[-1], np.arange(target))]), found, target), stats


def mixed(scored: Scored) -> np.ndarray:
  """[P] bool: accuracies differ among the valid samples.  On accuracy, not on the shaped reward."""
  best = np.where(scored.valid, scored.accuracy, -np.inf).max(axis=1)
  worst = np.where(scored.valid, scored.accuracy, np.inf).min(axis=1)
  return best > worst


def describe(groups: Groups) -> dict[str, float]:
  """Rewards and lengths of one step, over its valid samples on all processes."""
  _, rollout, scored = groups
  own = dict(
    valid=scored.valid, reward=scored.reward, accuracy=scored.accuracy,
    length=rollout.length, ended=rollout.ended,
  ) | {f"part {name}": part for name, part in scored.parts.items()}  # fmt: skip
  if jax.process_count() > 1:
    own = jax.tree.map(lambda x: multihost_utils.process_allgather(x, tiled=True), own)
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


def _fill(groups: Groups, found: int, target: int) -> Groups:
  """The first `target` groups; those beyond the `found` ones only fill the shape."""
  groups = _take(groups, np.arange(target))
  real = np.arange(target) < found
  scored = groups.scored
  return groups._replace(scored=scored._replace(valid=scored.valid & real[:, None]))


def _take(groups: Groups, rows: np.ndarray) -> Groups:
  take = lambda x: x[rows] if isinstance(x, np.ndarray) else x  # noqa: E731
  taken = jax.tree.map(take, groups._replace(prompts=groups.prompts._replace(example=None)))
  example = [groups.prompts.example[i] for i in rows]
  return taken._replace(prompts=taken.prompts._replace(example=example))


def _concatenate(parts: list[Groups]) -> Groups:
  bare = [p._replace(prompts=p.prompts._replace(example=None)) for p in parts]
  joined = jax.tree.map(lambda *xs: np.concatenate(xs), *bare)
  example = [e for p in parts for e in p.prompts.example]
  return joined._replace(prompts=joined.prompts._replace(example=example))


def _on_all(x: float) -> float:
  """The sum over processes.  All processes call this together, so none waits for ever."""
  if jax.process_count() == 1:
    return x
  return multihost_utils.process_allgather(np.array(x)).sum().item()
