"""The moving second moment of rewards around their group's mean, which `rescale.rms` divides by.

ScaleRL, https://arxiv.org/abs/2510.13786.  Groups without contrast move nothing.
"""

import numpy as np
from ml_collections import ConfigDict

from grpojax.types import Groups, Scored


def start(config: ConfigDict) -> np.ndarray | None:
  """Returns the moment before the first step, NaN [] float32; None if the run keeps none."""
  return np.array(np.nan, np.float32) if config.moment.kind else None


def of_step(config: ConfigDict, before: np.ndarray | None, scored: Scored, shards) -> tuple:
  """Collective: the moment of each of this process's groups, [P] float32, and after the step, [] float32.

  Both None if the run keeps none.  The order is that of the groups on all processes.
  """
  if before is None:
    return None, None
  reward, valid = shards.gather((scored.reward, scored.valid))
  update = dict(step=by_step, completion=by_completion)[config.moment.kind]
  rate = config.moment.rate
  if config.moment.kind == "step":  # what as many updates of single completions come to
    rate = 1 - (1 - rate) ** int(_centred(reward, valid)[1].sum())
  found, after = update(float(before), reward, valid, rate)
  return shards.local(found.astype(np.float32)), np.array(after, np.float32)


def beside(groups: Groups, moment: np.ndarray | None) -> Groups:
  """Returns the groups with the moment of each beside its rewards, for `rescale.rms`."""
  if moment is None:
    return groups
  rows = np.repeat(moment[:, None], groups.scored.reward.shape[1], axis=1)
  return groups._replace(scored=groups.scored._replace(extra=groups.scored.extra | dict(moment=rows)))


def by_step(before: float, reward: np.ndarray, valid: np.ndarray, rate: float) -> tuple[np.ndarray, float]:
  """Returns ([P] the moment of each group, the moment after the step), of rewards and `valid` [P, G].

  One update of weight `rate`, before use: the order of groups is nothing.  NaN before the first.
  """
  centred, counted = _centred(reward, valid)
  after = before
  if counted.any():
    after = _move(before, np.square(centred[counted]).mean(), rate)
  return np.full(len(reward), after), after


def by_completion(
  before: float, reward: np.ndarray, valid: np.ndarray, rate: float
) -> tuple[np.ndarray, float]:
  """Returns the same, with an update of weight `rate` for every completion in order, as TRL's.

  A group has the moment after its own completions.
  """
  centred, counted = _centred(reward, valid)
  found = np.empty(len(reward))
  for group, (row, on) in enumerate(zip(centred, counted, strict=True)):
    for x in row[on]:
      before = _move(before, x**2, rate)
    found[group] = before
  return found, before


def _move(before: float, value: float, rate: float) -> float:
  return float(value) if np.isnan(before) else float((1 - rate) * before + rate * value)


def _centred(reward: np.ndarray, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns R − mean of the group, and which of them count: valid ones in groups with contrast."""
  reward = np.where(valid, reward, 0.0).astype(np.float64)
  mean = reward.sum(1, keepdims=True) / np.maximum(valid.sum(1, keepdims=True), 1)
  high = np.where(valid, reward, -np.inf).max(1, keepdims=True)
  low = np.where(valid, reward, np.inf).min(1, keepdims=True)
  return reward - mean, valid & (high > low)
