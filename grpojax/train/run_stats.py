"""What a run remembers between its steps beside the policy; all of it is in the checkpoint.

float32 and int32 numpy, the same on every process; what the config does not ask for stays as it began.
"""

from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from grpojax.objective import trackers
from grpojax.rollout import curriculum
from grpojax.rollout.curriculum import Difficulty


class Memory(NamedTuple):
  reward: np.ndarray  # [] moving average of the steps' mean rewards; NaN before the first step
  kl_scale: np.ndarray  # [] factor on every KL coefficient
  grad_norm: np.ndarray  # [] moving average over the steps whose updates were all taken; NaN before the first
  nonfinite: np.ndarray  # [] int32, steps in a row up to the last with a loss or gradient that was not finite
  difficulty: Difficulty | None  # of every training prompt


def start(config: ConfigDict, rows: int) -> Memory:
  """Before the first step, for a training split of so many rows."""
  c, G, T = config.difficulty, config.rollout.group_size, config.rollout.max_tokens
  tracked = curriculum.start(c, rows, G, T) if c.kind else None
  never = np.array(np.nan, np.float32)
  return Memory(never, np.array(1, np.float32), never, np.array(0, np.int32), tracked)


def weights(config: ConfigDict, memory: Memory, mixture: np.ndarray | None) -> np.ndarray | None:
  """[rows]: how often to draw each training prompt, times what the mixture says; None: by epochs."""
  if not (memory.difficulty and config.difficulty.weighted):
    return mixture
  own = curriculum.weights(config.difficulty, memory.difficulty)
  return own if mixture is None else own * mixture


def baseline(config: ConfigDict, memory: Memory, rows: np.ndarray, reward: float) -> np.ndarray | None:
  """[P] float32, what was expected of the prompts `rows` before they were answered; None if not kept.

  The first step has nothing before it and takes its own mean `reward` for the moving average.
  """
  kind = config.baseline.kind
  if kind == "prompt":
    return curriculum.rate(memory.difficulty)[rows]
  if kind == "mean":
    known = reward if np.isnan(memory.reward) else memory.reward
    return np.full(len(rows), known, np.float32)
  return None


def after(config: ConfigDict, memory: Memory, seen: dict[str, float]) -> Memory:
  """The scalars after a step that measured `seen`; a step without any reward leaves the average."""
  scale, rate = memory.kl_scale, np.float32(config.baseline.rate)
  reward = _averaged(memory.reward, seen["reward"], rate)
  norm = np.nan if seen["update/skipped"] else seen["grad_norm"]
  norm = _averaged(memory.grad_norm, norm, np.float32(config.guard.rate))
  nonfinite = memory.nonfinite + 1 if seen["update/nonfinite"] else 0
  if config.kl_control.target > 0:
    completions = config.rollout.prompts * config.rollout.group_size
    scale = trackers.kl_scale(scale, seen["kl"], completions=completions, **config.kl_control)
  return memory._replace(
    reward=np.array(reward, np.float32),
    kl_scale=np.array(scale, np.float32),
    grad_norm=np.array(norm, np.float32),
    nonfinite=np.array(nonfinite, np.int32),
  )


def _averaged(average, new: float, rate):
  """The moving average; a step that measured nothing leaves it, and the first is it."""
  if np.isnan(new):
    return average
  return np.float32(new) if np.isnan(average) else trackers.ema(average, np.float32(new), rate=rate)


def describe(config: ConfigDict, memory: Memory) -> dict[str, float]:
  """Metrics of what is kept."""
  seen = {}
  if config.baseline.kind == "mean":
    seen["baseline"] = float(memory.reward)
  if config.kl_control.target > 0:
    seen["kl_scale"] = float(memory.kl_scale)
  if memory.difficulty:
    seen |= curriculum.describe(config.difficulty, memory.difficulty)
  return seen
