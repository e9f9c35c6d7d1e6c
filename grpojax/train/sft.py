"""A run of supervised fine-tuning.

It learns the conversations of config.sft.path, or the demonstrations of the task, from config.model.path or
the cold start, with adapters too.  config.data has the questions that it is evaluated on.
"""

from collections.abc import Callable
from pathlib import Path

from ml_collections import ConfigDict

from grpojax.data import demonstrations, messages
from grpojax.data.pipeline import Split
from grpojax.train import offline, setup, supervised
from grpojax.train.session import Session
from grpojax.train.setup import Job
from grpojax.train.state import RunState
from grpojax.train.supervised import Demonstrations


def run_config(config: ConfigDict) -> ConfigDict:
  """Returns the config that an SFT run has: config.sft in the places where every run has such numbers."""
  return offline.run_config(config, "sft", supervised.OBJECTIVE)


def prepare(config: ConfigDict, workdir: str | Path, share: Callable | None = None) -> Job:
  """Returns the run, ready to start: its `data.train` are the rows that it learns.

  Raises ValueError for all that can be wrong, as setup.prepare does; `share` is as it takes it.
  """
  rows_of_file = messages.read(config.sft.path) if config.sft.path else None
  job = setup.prepare(run_config(config), workdir, share=share)
  c = job.config
  split = job.data.train if rows_of_file is None else _encoded(c, rows_of_file, job.data.tokenizer)
  demonstrations.check(split, c.sft.batch_size, "sft")
  return offline.with_split(job, split, "sft", 1, share)


def _encoded(c: ConfigDict, found: list[dict], tokenizer) -> Split:
  """Returns the conversations of a file as a split, with a sentence on the answers that are cut."""
  split = messages.to_split(c.data, found, tokenizer, setup.prompt_form(c, tokenizer))
  return offline.note_cut(c, split, messages.count_cut(split, tokenizer, c.rollout.max_tokens))


def run(job: Job, on_step: Callable[[int, dict[str, float]], None] | None = None) -> bool:
  """Trains as offline.run does."""
  return offline.run(job, _updates, on_step)


def _updates(job: Job, session: Session, state: RunState) -> offline.Updates:
  """Yields the updates that are left."""
  c, data = job.config, job.data
  how = (c.rollout.max_tokens, 0) if c.sft.path else (c.env.observation_tokens, c.env.memory)
  shown = Demonstrations(c, data.train, data.tokenizer, c.sft.batch_size, c.seed, *how, job.pack)
  given = supervised.of_demonstrations(shown, job.mesh)
  left = range(state.step + 1, c.steps + 1)
  update = offline.timed(job)
  for step, learner, metrics, counts in supervised.updates(
    update, *given, state.learner, state.frozen, left, session.begin
  ):
    yield step, learner, metrics | {"sft/loss": metrics["loss"]}, counts
