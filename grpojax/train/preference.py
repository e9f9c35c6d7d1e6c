"""A run on pairs of answers, a chosen and a rejected one: DPO, IPO, SimPO (objective/preference.py).

It learns the pairs of config.preference.path, by the loss of config.preference.loss.  The reference, where
the loss reads one, is the policy that the run starts from, or that of config.reference; the optimiser is
fresh.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import objective as objective_lib
from grpojax.data import pairs, pipeline
from grpojax.data.pipeline import Split
from grpojax.learner import batching, logprobs
from grpojax.learner.packing import PackSpec
from grpojax.runtime import data_shards, sharding
from grpojax.train import offline, setup, supervised
from grpojax.train.session import Session
from grpojax.train.setup import Job
from grpojax.train.state import RunState
from grpojax.types import Batch


def run_config(config: ConfigDict) -> ConfigDict:
  """Returns the config that a run on pairs has: config.preference in the places where every run has such.

  Raises ValueError for a loss that is none.
  """
  objective_lib.preference_loss(config.preference.loss)
  loss = config.preference.loss.to_dict() | dict(coef=1.0)
  objective = supervised.OBJECTIVE.to_dict() | dict(advantage=dict(fn="none"), preference=dict(pairs=loss))
  c = offline.run_config(config, "preference", ConfigDict(objective))
  with c.unlocked():
    c.rollout.group_size = len(pairs.SIDES)
    c.reference = config.reference or "init"
    if not objective_lib.reads_reference(c):
      c.reference = ""
  return c


def prepare(config: ConfigDict, workdir: str | Path, share: Callable | None = None) -> Job:
  """Returns the run, ready to start: its `data.train` are the pairs that it learns.

  Raises ValueError for all that can be wrong, as setup.prepare does; `share` is as it takes it.
  """
  found = pairs.read(config.preference.path)
  job = setup.prepare(run_config(config), workdir, share=share)
  c, tokenizer = job.config, job.data.tokenizer
  form = setup.prompt_form(c, tokenizer)
  split = pipeline.encode_split(c.data, "preference", found, tokenizer, form, ())
  if c.preference.batch_size > len(split.records):
    raise ValueError(
      f"config.preference.batch_size = {c.preference.batch_size} is more than the {len(split.records)} pairs"
      f" of {c.preference.path}; lower it, or give it more pairs."
    )
  cut = pairs.count_cut(pairs.encoded(split, split.records, tokenizer), c.rollout.max_tokens)
  return offline.with_split(job, offline.note_cut(c, split, cut), "preference", len(pairs.SIDES), share)


def run(job: Job, on_step: Callable[[int, dict[str, float]], None] | None = None) -> bool:
  """Trains as offline.run does."""
  return offline.run(job, _updates, on_step)


def _updates(job: Job, session: Session, state: RunState) -> offline.Updates:
  """Yields the updates that are left."""
  c, logp = job.config, job.programs.logp
  objective = sharding.everywhere(job.mesh, objective_lib.build(c.objective))

  def batch(number: int):
    found, counts = batch_of(c, job.data.train, job.data.tokenizer, number, job.mesh, job.pack)
    found = sharding.to_device(job.mesh, found)
    with job.rollout.timer.phase("logprob"):
      (found,) = logprobs.add_logprobs(logp, None, state.reference, [found], False)
    return found, counts

  left = range(state.step + 1, c.steps + 1)
  update = offline.timed(job)
  yield from supervised.updates(
    update, objective, batch, state.learner, state.frozen, left, session.begin
  )


def batch_of(
  config: ConfigDict, split: Split, tokenizer, number: int, mesh: Mesh, pack: PackSpec | None
) -> tuple[Batch, dict[str, int]]:
  """Returns this process's pairs of a batch, the chosen answers first, and counts of the whole one."""
  size, T = config.preference.batch_size, config.rollout.max_tokens
  found = pairs.batch(split, tokenizer, size, T, config.seed, number)
  counts = {"num_tokens": int(found["mask"].sum()), "preference/cut": found["cut"]}
  mine = data_shards.of(mesh).local(np.arange(size))
  tokens, mask, prompt_length, length = (
    found[name][mine] for name in ("tokens", "mask", "prompt_length", "length")
  )
  reward = np.broadcast_to(np.array([1, 0], np.float32), length.shape)  # which is the better one
  batch = Batch(
    mask=mask,
    reward=reward,
    accuracy=reward,
    valid=length > 0,
    ended=length > 0,
    tokens=tokens,
    prompt_length=prompt_length,
    length=length,
  )
  if pack:
    index = batching.pack_index(pack, mesh, prompt_length, length)
    batch = batch._replace(packing_index=index)
  return batch, counts
