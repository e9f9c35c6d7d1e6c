"""All that a run carries from step to step: one pytree, which a checkpoint saves and a start restores."""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from grpojax.learner.state import State
from grpojax.models import hf
from grpojax.rollout import curriculum
from grpojax.rollout.curriculum import Difficulty
from grpojax.rollout.survey import estimate_difficulty
from grpojax.runtime.metrics import Writer
from grpojax.train import adapters, cold_start
from grpojax.train import moment as moment_lib
from grpojax.train import policy as policy_lib
from grpojax.train.setup import Job


class RunState(NamedTuple):
  """State of a run between two steps.  numpy leaves are equal on every process."""

  step: int  # training steps done
  learner: State  # trained parameters, optimiser and the updates' running statistics
  policies: dict[str, dict]  # trained parameters of the other named policies: "reference"
  reward_average: np.ndarray  # [] float32, moving average of the steps' mean rewards; NaN before the first
  curriculum: Difficulty | None  # success rate of every training prompt
  frozen: dict  # parameters that no update changes; not in the checkpoint: train/adapters.py keeps them
  reward_moment: np.ndarray | None = None  # [] float32, mean (R − group's mean)²; NaN before the first

  @property
  def policy(self) -> dict:
    """Returns all parameters of the policy that is trained."""
    return self.frozen | self.learner.params

  @property
  def reference(self) -> dict | None:
    """Returns all parameters of the reference; None if the run has none."""
    return self.frozen | self.policies["reference"] if "reference" in self.policies else None

  def draw_weights(self, config: ConfigDict, mixture: np.ndarray | None) -> np.ndarray | None:
    """Returns [rows]: how often to draw each training prompt; None: by epochs."""
    return curriculum.draw_weights(config.difficulty, self.curriculum, mixture)


def initial(job: Job, writer: Writer) -> tuple[RunState, list]:
  """Returns (the state of a new run, nothing in flight): the policy of a folder or of the cold start."""
  config, data, context = job.config, job.data, job.rollout
  model = job.model
  with context.timer.phase("start"):
    if "path" in config.model:
      params = hf.load(policy_lib.model_folder(config), model, job.mesh)
    else:
      base = model._replace(lora=None)
      params = cold_start.cold_start(config, base, job.mesh, data.train, data.tokenizer, writer)
  frozen, params = adapters.begin(config, job.workdir, model, job.mesh, params)
  policies = {"reference": _reference(job, params)} if config.reference else {}
  known = new_curriculum(job)
  if config.difficulty.offline:
    known = estimate_difficulty(context, frozen, params, known)
  never = np.array(np.nan, np.float32)
  moment = moment_lib.start(config)
  return RunState(0, job.programs.fresh(params), policies, never, known, frozen, moment), []


def _reference(job: Job, params: dict) -> dict:
  """Returns the reference that a run begins with: the policy that it starts from, or that of a folder."""
  if job.config.reference == "init":
    return jax.tree.map(jnp.copy, params)
  return hf.load(Path(job.config.reference).expanduser(), job.model, job.mesh)


def new_curriculum(job: Job) -> Difficulty | None:
  """Returns what is known of the training prompts before any was sampled; None if the run keeps nothing."""
  c, r, rows = job.config.difficulty, job.config.rollout, len(job.data.train.records)
  return curriculum.start(c, rows, r.group_size, r.max_tokens) if c.kind else None
