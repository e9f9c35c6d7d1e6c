"""Tables of every variant in every scenario, and of some over group size, length, clip range, τ and C.

A row is a mean over random policies.  `<number>/error` is its standard error from sampling groups (0
where all were enumerated), `<number>/spread` the deviation from policy to policy.
"""

import json
import math
from collections.abc import Callable, Iterable

import numpy as np

from experiments.estimator_lab import measure, policy, settings, variants
from experiments.estimator_lab.claims.common import WORLD
from experiments.estimator_lab.size import Size

KEYS = ("cosine", "norm", "bias", "noise", "variance", "lost", "clipped")
LARGEST_GROUP = 4  # above it, the multisets of 15 responses are sampled
UPDATES, RATE, NOISE = 16, 0.5, "noise 0.5"  # far enough that clipping has something to do


def table(size: Size) -> list[dict]:
  """Measures every recipe in every scenario, G = 3, all groups enumerated."""
  rows = []
  cases = [
    settings.scenarios(WORLD, policy.random_policy(WORLD, seed), seed)
    for seed in range(size.policies)
  ]
  groups = [{k: measure.enumerate_groups(s, 3) for k, s in case.items()} for case in cases]
  for name, objective in distinct_recipes().items():
    for scenario in cases[0]:
      found = [
        measure.measure(objective, case[scenario], group[scenario])
        for case, group in zip(cases, groups, strict=True)
      ]
      rows.append(dict(variant=name, scenario=scenario) | _mean(found))
  return rows


def distinct_recipes() -> dict:
  """Returns objectives by the names of the recipes that are the same on a single turn without KL."""
  names = {}
  for name in variants.RECIPES:
    key = json.dumps(variants.recipe(name).to_dict(), sort_keys=True)
    names.setdefault(key, []).append(name)
  return {" = ".join(same): variants.build(same[0]) for same in names.values()}


def sweeps(size: Size) -> list[dict]:
  """Returns all sweeps, one row per point."""
  return [*_group_size(size), *_length(size), *_clip_range(size), *_temperature(size), *_cap(size)]


def _group_size(size: Size) -> Iterable[dict]:
  for name in ("rloo", "dr_grpo", "grpo", "dapo"):
    for G in size.group_sizes:
      yield _point("group size", name, G, variants.build(name), _on_policy, size, G)


def _length(size: Size) -> Iterable[dict]:
  for name in ("rloo", "dr_grpo", "grpo", "gspo", "gmpo"):
    for T in size.lengths:
      make = lambda seed, T=T: settings.stale(*policy.counting(T, seed), 4, 0.1, seed)
      yield _point("length", name, T, variants.build(name), make, size, 8)


def _clip_range(size: Size) -> Iterable[dict]:
  for side in ("low", "high"):
    for x in (0.05, 0.1, 0.2, 0.28, 0.5, 0.9):
      knobs = dict(fn="ppo_clip", low=0.2, high=0.2) | {side: x}
      objective = variants.build("grpo", surrogate=knobs)
      yield _point(f"ε {side}", "grpo", x, objective, _stale, size, 3)


def _temperature(size: Size) -> Iterable[dict]:
  for x in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0):
    objective = variants.build("sapo", surrogate=dict(fn="sapo", tau_pos=x, tau_neg=x))
    yield _point("τ", "sapo", x, objective, _stale, size, 3)


def _cap(size: Size) -> Iterable[dict]:
  for fn in ("truncated_is", "sequence_truncated_is", "masked_is"):
    for x in (1.05, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0):
      objective = variants.build("rloo", correct={"it": dict(fn=fn, high=x)})
      yield _point("C", fn, x, objective, _mismatched, size, 3)


def _on_policy(seed: int) -> measure.Setting:
  return measure.on_policy(WORLD, policy.random_policy(WORLD, seed))


def _stale(seed: int) -> measure.Setting:
  return settings.stale(WORLD, policy.random_policy(WORLD, seed), UPDATES, RATE, seed)


def _mismatched(seed: int) -> measure.Setting:
  return settings.mismatched(WORLD, policy.random_policy(WORLD, seed), NOISE, 2000 + seed)


def _point(sweep: str, name: str, x: float, objective, make: Callable, size: Size, G: int) -> dict:
  found = []
  for seed in range(size.policies):
    setting = make(seed)
    exact = G <= LARGEST_GROUP and setting.world is WORLD
    groups = (
      measure.enumerate_groups(setting, G)
      if exact
      else measure.sample_groups(setting, G, size.groups // 2, 20_000 + seed)
    )
    found.append(measure.measure(objective, setting, groups))
  return dict(sweep=sweep, variant=name, x=x) | _mean(found)


def _mean(found: list[measure.Measurement]) -> dict[str, float]:
  """Returns means over policies, their errors from sampling, and the deviation between policies."""
  row = {}
  for key in KEYS:
    values = np.array([getattr(m, key) for m in found])
    errors = np.array([m.error[key] for m in found])
    row[key] = float(values.mean())
    row[f"{key}/error"] = float(math.sqrt((errors**2).sum()) / len(found))
    row[f"{key}/spread"] = float(values.std(ddof=1)) if np.isfinite(values).all() else math.inf
  return row
