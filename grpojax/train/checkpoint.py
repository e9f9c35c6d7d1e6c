"""Checkpoints of a run: its state, the rollouts in flight, the position in the prompt stream."""

from typing import NamedTuple

import jax
import numpy as np

from grpojax.runtime import checkpointer, checksums, console, sharding
from grpojax.train import adapters, manifest, teacher
from grpojax.train import moment as moment_lib
from grpojax.train import programs as programs_lib
from grpojax.train.setup import Job
from grpojax.train.state import RunState, new_curriculum


class Restored(NamedTuple):
  """A checkpoint that a run goes on from."""

  state: RunState
  in_flight: list  # of Prefetcher
  records: dict[str, str]  # SHA-256 of the records up to the checkpoint, by file


def restore(job: Job, checkpoints, stands_on: dict) -> Restored | None:
  """Returns what the newest checkpoint holds; None where there is no checkpoint.

  The prompt stream goes back to where it was.  `stands_on` is this start's manifest.  Raises ValueError for a
  checkpoint that stands on something else.
  """
  config = job.config
  check = lambda host: manifest.compare(host["stands_on"], stands_on, job.asked, host["step"])
  restored = checkpointer.latest(checkpoints, *tree_layout(job), check)
  if not restored:
    return None
  (learner, policies, reward_average, known, in_flight, moment), host = restored
  job.data.stream.set_state(host["stream"])
  with job.rollout.timer.phase("start"):
    frozen = adapters.frozen(config, job.workdir, job.model, job.mesh)
    manifest.compare_frozen(host["frozen"], frozen, config, host["step"])
    if job.teachers:
      now = teacher.checksums_of(job.teachers)
      manifest.compare_teacher(host.get("teacher", {}), now, config, host["step"])
  console.say(f"resumed after step {host['step']} of {job.config.steps}")
  reward_average, known, moment = jax.tree.map(np.asarray, (reward_average, known, moment))
  state = RunState(host["step"], learner, policies or {}, reward_average, known, frozen, moment)
  in_flight = list(zip(in_flight or (), host["in_flight"], strict=True))
  return Restored(state, in_flight, host["stands_on"]["records"])


def checkpoint_tree(
  job: Job, state: RunState, in_flight: tuple[tuple, list], stands_on: dict
) -> tuple[tuple, dict]:
  """Returns (arrays, plain data) of a checkpoint; `in_flight` is what Prefetcher.checkpoint gave."""
  params, plain = in_flight
  *host_arrays, moment = sharding.everywhere(
    job.mesh, (state.reward_average, state.curriculum, state.reward_moment)
  )
  tree = (state.learner, state.policies or None, *host_arrays, params or None, moment)
  host = {"step": state.step, "stream": job.data.stream.get_state(), "in_flight": plain}
  host |= {"stands_on": stands_on, "frozen": checksums.of_leaves(state.frozen)}
  return tree, host | ({"teacher": teacher.checksums_of(job.teachers)} if job.teachers else {})


def tree_layout(job: Job) -> tuple[tuple, tuple]:
  """Returns (shapes, shardings) of `checkpoint_tree`'s arrays."""
  config, mesh = job.config, job.mesh
  shapes, where = programs_lib.state_layout(config, job.model, mesh)
  ahead = config.staleness
  host_arrays = np.array(0, np.float32), new_curriculum(job), moment_lib.start(config)
  everywhere = jax.tree.map(lambda _: sharding.replicated(mesh), host_arrays)

  def tree(state, host_arrays):
    others = {name: state.params for name in job.policies if name != "policy"}
    *host_arrays, moment = host_arrays
    return state, others or None, *host_arrays, (state.params,) * ahead or None, moment

  return tree(shapes, host_arrays), tree(where, everywhere)
