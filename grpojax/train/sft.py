"""A run of supervised fine-tuning: the workdir, records, checkpoints and evaluations of any run.

    answers -> batches -> update -> checkpoint, evaluate, report

It learns the conversations of config.sft.path, or the demonstrations of the task, from config.model.path or
the cold start, with adapters too.  config.data has the questions that it is evaluated on.
"""

import math
from collections.abc import Callable
from pathlib import Path

from ml_collections import ConfigDict

from grpojax.config import recipe
from grpojax.data import demonstrations, messages, templates
from grpojax.data.pipeline import Split
from grpojax.learner import logprobs, optimizer, rows
from grpojax.learner.packing import PackSpec
from grpojax.learner.rows import Rows
from grpojax.runtime import sharding
from grpojax.train import setup, supervised
from grpojax.train import state as run_state
from grpojax.train.banner import announce_setup, finish
from grpojax.train.loop import due
from grpojax.train.session import Session
from grpojax.train.setup import Job
from grpojax.train.supervised import Demonstrations

OF_RL = (  # sections that say how RL samples and learns; an SFT run has what base.py has
  "objective", "reference", "teacher", "reference_sync", "kl_control", "baseline", "moment", "staleness",
  "dynamic_sampling", "adaptive_group", "difficulty", "process", "routing_replay", "load_balance",
  "updates_per_rollout",
)  # fmt: skip


def run_config(config: ConfigDict) -> ConfigDict:
  """Returns the config that an SFT run has: config.sft in the places where every run has such numbers."""
  c, default = config.copy_and_resolve_references(), recipe.defaults(config.scale)
  with c.unlocked():
    for section in OF_RL:
      c[section] = default[section]
    for slot, value in supervised.OBJECTIVE.items():
      c.objective[slot] = value
    c.steps, c.updates_per_rollout = config.sft.steps, 1
    c.optimizer.update(
      fn=config.sft.optimizer, learning_rate=config.sft.learning_rate, warmup_steps=config.sft.warmup_steps
    )
    c.optimizer.update(ess="", ess_base=default.optimizer.ess_base)  # of completions that were sampled
  return c


def prepare(config: ConfigDict, workdir: str | Path) -> Job:
  """Returns the run, ready to start: its `data.train` are the rows that it learns.

  Raises ValueError for all that can be wrong, as setup.prepare does.
  """
  rows_of_file = messages.read(config.sft.path) if config.sft.path else None
  job = setup.prepare(run_config(config), workdir)
  c, model, mesh = job.config, job.model, job.mesh
  split = job.data.train if rows_of_file is None else _encoded(c, rows_of_file, job.data.tokenizer)
  demonstrations.check(split, c.sft.batch_size, "sft")
  setup.check_prompts(model, split)
  pack = pack_spec(c, sharding.batch_shards(mesh))
  schedule = supervised.cosine(c.sft.learning_rate, c.sft.warmup_steps, c.steps)
  tx = optimizer.make_optimizer(c.optimizer, schedule, model.trained.axes)
  update = supervised.program("SFT update", model, mesh, _rows(c, model, pack), tx, schedule)
  job = job.with_programs(job.programs._replace(update=update))
  rollout = job.rollout._replace(data=job.data._replace(train=split))
  return job._replace(rollout=rollout, pack=pack)


def _encoded(c: ConfigDict, found: list[dict], tokenizer) -> Split:
  """Returns the conversations of a file as a split, with a sentence on the answers that are cut."""
  d = c.data
  form = templates.build(d.template, d.system, d.chat, d.split_special_tokens)
  split = messages.to_split(d, found, tokenizer, form)
  if cut := messages.count_cut(split, tokenizer, c.rollout.max_tokens):
    note = f"{cut} answers are cut at config.rollout.max_tokens = {c.rollout.max_tokens}, without an end"
    return split._replace(notes=(*split.notes, note))
  return split


def pack_spec(config: ConfigDict, shards: int) -> PackSpec | None:
  """Returns the static sizes of packed rows, each as long as the longest sequence may be; None: single rows.

  Raises ValueError where the batch cannot be divided by shards, and in single rows by microbatches.
  """
  size, packed = config.sft.batch_size, config.rows == "packed"
  pieces = shards if packed else shards * config.microbatches
  if size % pieces:
    raise ValueError(
      f"config.sft.batch_size = {size} must be divisible by {pieces}, the mesh's shards"
      f"{'' if packed else ' times config.microbatches'}."
    )
  if not packed:
    return None
  T = config.rollout.max_tokens
  of_microbatch = math.ceil(size / shards / config.microbatches)
  return PackSpec(T, shards, of_microbatch, config.data.prompt_budget + T - 1, shared=False)


def _rows(config: ConfigDict, model, pack: PackSpec | None) -> Rows:
  """Returns the layout of sequences in rows."""
  how = dict(temperature=1.0, chunk=config.logprob_chunk)
  if pack:
    return rows.packed(logprobs.make_packed_logp(model, **how), pack)
  logp = logprobs.make_logp(model, response_budget=config.rollout.max_tokens, **how)
  return rows.single(logp, config.microbatches)


def run(job: Job, on_step: Callable[[int, dict[str, float]], None] | None = None) -> bool:
  """Trains until `config.steps`, from the newest checkpoint in the workdir or from the initial policy.

  Returns True when config.steps was reached, False when the run was asked to stop (and has saved).
  """
  c = job.config
  announce_setup(job)
  with Session(job, on_step) as session:
    state, _ = session.restored or run_state.initial(job, session.writer)
    if state.step == 0:
      session.evaluate(0, state.policy)
    with session.watch():
      for step, learner, metrics, counts in _updates(job, session, state):
        state = state._replace(step=step, learner=learner)
        session.push(step, [metrics | {"sft/loss": metrics["loss"]}], counts)
        if due(c.eval.every, step, c.steps):
          session.evaluate(step, state.policy)
        if due(c.checkpoint.every, step, c.steps):
          session.save(state)
        if session.stop_requested():
          break
      session.save(state)
  finish(job, session, state.step)
  return state.step >= c.steps


def _updates(job: Job, session: Session, state):
  """Returns the updates that are left, as supervised.updates yields them; their seconds are a phase."""
  c, data = job.config, job.data

  def update(*inputs):
    with job.rollout.timer.phase("update"):
      return job.programs.update(*inputs)

  how = (c.rollout.max_tokens, 0) if c.sft.path else (c.env.observation_tokens, c.env.memory)
  shown = Demonstrations(c, data.train, data.tokenizer, c.sft.batch_size, c.seed, *how, job.pack)
  left = range(state.step + 1, c.steps + 1)
  return supervised.updates(update, shown, job.mesh, state.learner, state.frozen, left, session.begin)
