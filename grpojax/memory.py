"""What a run remembers between its steps beside the policy; all of it is in the checkpoint.

float32 and int32 numpy, the same on every process; what the config does not ask for stays as it began.
"""

from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from grpojax import difficulty
from grpojax.difficulty import Difficulty
from grpojax.objective import trackers


class Memory(NamedTuple):
  reward: np.ndarray  # [] moving average of the steps' mean rewards; NaN before the first step
  kl_scale: np.ndarray  # [] factor on every KL coefficient
  difficulty: Difficulty | None  # of every training prompt


def start(config: ConfigDict, rows: int) -> Memory:
  """Before the first step, for a training split of so many rows."""
  c, G, T = config.difficulty, config.rollout.group_size, config.rollout.max_tokens
  tracked = difficulty.start(c, rows, G, T) if c.kind else None
  return Memory(np.array(np.nan, np.float32), np.array(1, np.float32), tracked)


def weights(config: ConfigDict, memory: Memory, mixture: np.ndarray | None) -> np.ndarray | None:
  """[rows]: how often to draw each training prompt, times what the mixture says; None: by epochs."""
  if not (memory.difficulty and config.difficulty.weighted):
    return mixture
  own = difficulty.weights(config.difficulty, memory.difficulty)
  return own if mixture is None else own * mixture


def baseline(config: ConfigDict, memory: Memory, rows: np.ndarray, reward: float) -> np.ndarray | None:
  """[P] float32, what was expected of the prompts `rows` before they were answered; None if not kept.

  The first step has nothing before it and takes its own mean `reward` for the moving average.
  """
  kind = config.baseline.kind
  if kind == "prompt":
    return difficulty.rate(memory.difficulty)[rows]
  if kind == "mean":
    known = reward if np.isnan(memory.reward) else memory.reward
    return np.full(len(rows), known, np.float32)
  return None


def after(config: ConfigDict, memory: Memory, seen: dict[str, float]) -> Memory:
  """The scalars after a step that measured `seen`; a step without any reward leaves the average."""
  reward, scale = np.float32(seen["reward"]), memory.kl_scale
  if np.isnan(reward):
    reward = memory.reward
  elif not np.isnan(memory.reward):
    reward = trackers.ema(memory.reward, reward, rate=np.float32(config.baseline.rate))
  if config.kl_control.target > 0:
    completions = config.rollout.prompts * config.rollout.group_size
    scale = trackers.kl_scale(scale, seen["kl"], completions=completions, **config.kl_control)
  return memory._replace(reward=np.array(reward, np.float32), kl_scale=np.array(scale, np.float32))


def describe(config: ConfigDict, memory: Memory) -> dict[str, float]:
  """Metrics of what is kept."""
  seen = {}
  if config.baseline.kind == "mean":
    seen["baseline"] = float(memory.reward)
  if config.kl_control.target > 0:
    seen["kl_scale"] = float(memory.kl_scale)
  if memory.difficulty:
    seen |= difficulty.describe(config.difficulty, memory.difficulty)
  return seen
