"""All that a run carries from step to step: one pytree, which a checkpoint saves and a start restores."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from grpojax.learner.state import State
from grpojax.models import hf
from grpojax.objective import trackers
from grpojax.rollout import curriculum
from grpojax.rollout.curriculum import Difficulty
from grpojax.rollout.survey import estimate_difficulty
from grpojax.runtime import checkpoint, console, sharding
from grpojax.runtime.metrics import Writer
from grpojax.train import adapters, setup, sft
from grpojax.train.setup import Job


class RunState(NamedTuple):
  """State of a run between two steps.  numpy leaves are equal on every process."""

  step: int  # training steps done
  learner: State  # trained parameters, optimiser and the updates' running statistics
  policies: dict[str, dict]  # trained parameters of the other named policies: "reference"
  reward_average: np.ndarray  # [] float32, moving average of the steps' mean rewards; NaN before the first
  curriculum: Difficulty | None  # success rate of every training prompt
  frozen: dict  # parameters that no update changes; not in the checkpoint: train/adapters.py keeps them

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
      params = hf.load(setup.model_folder(config), model, job.mesh)
    else:
      base = model._replace(lora=None)
      params = sft.cold_start(config, base, job.mesh, data.train, data.tokenizer, writer)
  frozen, params = adapters.begin(config, job.workdir, model, job.mesh, params)
  policies = {"reference": jax.tree.map(jnp.copy, params)} if config.reference else {}
  known = _new_curriculum(job)
  if config.difficulty.offline:
    known = estimate_difficulty(context, frozen, params, known)
  never = np.array(np.nan, np.float32)
  return RunState(0, job.programs.fresh(params), policies, never, known, frozen), []


def restore(job: Job, checkpoints) -> tuple[RunState, list] | None:
  """Returns (the newest checkpoint's state, what was in flight); None where there is no checkpoint.

  The prompt stream goes back to where it was.  Raises ValueError for a checkpoint of another run.
  """
  restored = checkpoint.latest(checkpoints, *tree_layout(job))
  if not restored:
    return None
  (learner, policies, reward_average, known, in_flight), host = restored
  job.data.stream.set_state(host["stream"])
  with job.rollout.timer.phase("start"):
    frozen = adapters.frozen(job.config, job.workdir, job.model, job.mesh)
  console.say(f"resumed after step {host['step']} of {job.config.steps}")
  reward_average, known = jax.tree.map(np.asarray, (reward_average, known))
  state = RunState(host["step"], learner, policies or {}, reward_average, known, frozen)
  return state, list(zip(in_flight or (), host["in_flight"], strict=True))


def checkpoint_tree(job: Job, state: RunState, in_flight: tuple[tuple, list]) -> tuple[tuple, dict]:
  """Returns (arrays, plain data) of a checkpoint; `in_flight` is what Prefetcher.checkpoint gave."""
  params, plain = in_flight
  host_arrays = sharding.everywhere(job.mesh, (state.reward_average, state.curriculum))
  tree = (state.learner, state.policies or None, *host_arrays, params or None)
  return tree, {"step": state.step, "stream": job.data.stream.get_state(), "in_flight": plain}


def tree_layout(job: Job) -> tuple[tuple, tuple]:
  """Returns (shapes, shardings) of `checkpoint_tree`'s arrays."""
  config, mesh = job.config, job.mesh
  shapes, where = setup.state_layout(config, job.model, mesh)
  ahead = config.staleness
  host_arrays = np.array(0, np.float32), _new_curriculum(job)
  everywhere = jax.tree.map(lambda _: sharding.replicated(mesh), host_arrays)

  def tree(state, host_arrays):
    others = {name: state.params for name in job.policies if name != "policy"}
    return state, others or None, *host_arrays, (state.params,) * ahead or None

  return tree(shapes, host_arrays), tree(where, everywhere)


def _new_curriculum(job: Job) -> Difficulty | None:
  """Returns what is known of the training prompts before any was sampled; None if the run keeps nothing."""
  c, r, rows = job.config.difficulty, job.config.rollout, len(job.data.train.records)
  return curriculum.start(c, rows, r.group_size, r.max_tokens) if c.kind else None


def average(before: np.ndarray, new: float, rate: float) -> np.ndarray:
  """Returns the moving average [] float32; a step that measured nothing leaves it, and the first is it."""
  if np.isnan(new):
    return before
  new = np.float32(new)
  found = new if np.isnan(before) else trackers.ema(before, new, rate=np.float32(rate))
  return np.array(found, np.float32)
