"""The baseline of a step, a reward that is expected before sampling; and the moving average of rewards."""

import numpy as np

from grpojax.objective.stats import ema
from grpojax.rollout import curriculum
from grpojax.train.setup import Job
from grpojax.train.state import RunState


def expected_reward(job: Job, state: RunState, rows: np.ndarray, reward: float) -> np.ndarray | None:
  """Returns [P] float32, the reward expected of these prompts before they were answered; None if not kept.

  The first step has nothing before it and takes its own mean `reward` for the moving average.
  """
  kind = job.config.baseline.kind
  if kind == "prompt":
    return curriculum.rate(state.curriculum)[rows]
  if kind == "mean":
    known = reward if np.isnan(state.reward_average) else state.reward_average
    return np.full(len(rows), known, np.float32)
  return None


def average(before: np.ndarray, reward: float, rate: float) -> np.ndarray:
  """Returns the moving average [] float32 of the steps' mean rewards; NaN before the first.

  A step that measured nothing leaves it.
  """
  if np.isnan(reward):
    return before
  new = np.float32(reward)
  found = new if np.isnan(before) else ema(before, new, rate=np.float32(rate))
  return np.array(found, np.float32)
