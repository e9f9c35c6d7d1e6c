"""What rollouts are made with, once for a run."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from grpojax.data import pipeline
from grpojax.rewards import Rewards
from grpojax.rollout.sampler import Engine
from grpojax.runtime.data_shards import ProcessShards
from grpojax.runtime.timer import Timer
from grpojax.types import Prompts


class Data(NamedTuple):
  """The questions of a run."""

  tokenizer: Any
  train: pipeline.Split
  held_out: pipeline.Split
  stream: pipeline.Stream  # of this process's shard of the training prompts


class RolloutContext(NamedTuple):
  """Everything between prompts and scored groups but the policy's parameters."""

  config: ConfigDict
  data: Data
  scorer: Rewards
  step_scorer: Callable | None  # samples -> the scores of each one's steps
  engine: Engine
  eval_engine: Engine  # with config.eval's sampling, budget and number of samples
  shards: ProcessShards
  timer: Timer
  counters: Counter  # what happened on this host, and the sampler's work, since the last step's record

  @property
  def streams(self) -> bool:
    """Returns True if dynamic sampling submits prompts as slots free up, not round by round.

    What was sampled ahead is all there at once.  Processes that share a shard score its groups each for
    itself, and would disagree on what has been answered.
    """
    apart = self.shards.count == jax.process_count() and not self.config.staleness
    return self.config.dynamic_sampling.enabled and self.engine.streams and apart


def take_prompts(data: Data, rows: np.ndarray) -> Prompts:
  """Returns the training prompts of these rows."""
  return pipeline.take(data.train, rows, data.tokenizer.pad_token_id)


def rows_of(data: Data, ids: np.ndarray) -> np.ndarray:
  """Returns the rows of these prompt ids in the training split, whose ids ascend."""
  return np.searchsorted(data.train.ids, ids)
