"""What runs on given answers share, SFT and preferences: their config, programs and loop.

    answers -> batches -> update -> checkpoint, evaluate, report

The workdir, records, checkpoints and evaluations are those of any run.
"""

import math
from collections.abc import Callable, Iterator

from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax.config import recipe
from grpojax.data.pipeline import Split
from grpojax.learner import optimizer, rows
from grpojax.learner.packing import PackSpec
from grpojax.models import Model
from grpojax.runtime import sharding
from grpojax.train import policy as policy_lib
from grpojax.train import programs as programs_lib
from grpojax.train import shared, supervised
from grpojax.train import state as run_state
from grpojax.train.banner import announce_setup, finish
from grpojax.train.loop import due
from grpojax.train.session import Session
from grpojax.train.setup import Job
from grpojax.train.state import RunState

OF_RL = (  # sections that say how RL samples and learns; a run on given answers has what base.py has
  "objective", "reference", "teacher", "reference_sync", "kl_control", "baseline", "moment", "staleness",
  "dynamic_sampling", "adaptive_group", "difficulty", "process", "routing_replay", "load_balance",
  "interruption", "updates_per_rollout",
)  # fmt: skip
Updates = Iterator[tuple[int, "supervised.State", dict, dict]]  # as supervised.updates yields them


def run_config(config: ConfigDict, section: str, objective: ConfigDict) -> ConfigDict:
  """Returns the config of a run: config.<section> in the places where every run has such numbers."""
  c, own, default = config.copy_and_resolve_references(), config[section], recipe.defaults(config.scale)
  with c.unlocked():
    for name in OF_RL:
      c[name] = default[name]
    for slot, value in objective.items():
      c.objective[slot] = value
    c.steps, c.updates_per_rollout = own.steps, 1
    c.optimizer.update(fn=own.optimizer, learning_rate=own.learning_rate, warmup_steps=own.warmup_steps)
    c.optimizer.update(ess="", ess_base=default.optimizer.ess_base)  # of completions that were sampled
  return c


def note_cut(config: ConfigDict, split: Split, cut: int) -> Split:
  """Returns the split with a sentence on so many answers that are cut."""
  if not cut:
    return split
  note = f"{cut} answers are cut at config.rollout.max_tokens = {config.rollout.max_tokens}, without an end"
  return split._replace(notes=(*split.notes, note))


def with_split(
  job: Job, split: Split, section: str, completions: int, share: Callable | None = None
) -> Job:
  """Returns the run whose `data.train` is the split, with programs for its batches.

  A batch has config.<section>.batch_size prompts, and so many completions of each; `share` is as
  setup.prepare takes it.  Raises ValueError.
  """
  c, model, mesh = job.config, job.model, job.mesh
  policy_lib.check_prompts(model, split)
  batch = c[section].batch_size, completions
  given = c, model, job.data.tokenizer, mesh, section, batch, c.steps
  update, logp, pack = (share or shared.anew)(_build, *given)
  programs = job.programs._replace(update=update, logp=logp)
  rollout = job.rollout._replace(data=job.data._replace(train=split._replace(name=section)))
  return job.with_programs(programs)._replace(rollout=rollout, pack=pack)


def _build(
  config: ConfigDict, model: Model, tokenizer, mesh: Mesh, section: str, batch: tuple[int, int], steps: int
) -> tuple[Callable, Callable, PackSpec | None]:
  """Builds the update, whose learning rate is a cosine of so many steps, log-probs and packing of a batch."""
  schedule = supervised.cosine(config.optimizer.learning_rate, config.optimizer.warmup_steps, steps)
  tx = optimizer.make_optimizer(config.optimizer, schedule, model.trained.axes)
  pack = pack_spec(config, sharding.batch_shards(mesh), section, batch)
  layout = rows.of(config, model, mesh, pack, temperature=1.0)
  update = supervised.program(f"{section} update", model, mesh, layout, tx, schedule)
  return update, programs_lib.build_logp(model, mesh, layout), pack


def pack_spec(config: ConfigDict, shards: int, section: str, batch: tuple[int, int]) -> PackSpec | None:
  """Returns the static sizes of packed rows, each as long as the longest sequence may be; None: single rows.

  A `batch` is (prompts, completions of each).  Raises ValueError where it cannot be divided by shards, and
  in single rows by microbatches.
  """
  (size, completions), packed = batch, config.rows == "packed"
  pieces = shards if packed else shards * config.microbatches
  if size % pieces:
    raise ValueError(
      f"config.{section}.batch_size = {size} must be divisible by {pieces}, the mesh's shards"
      f"{'' if packed else ' times config.microbatches'}."
    )
  if not packed:
    return None
  T = config.rollout.max_tokens
  of_microbatch = math.ceil(size * completions / shards / config.microbatches)
  return PackSpec(T, shards, of_microbatch, config.data.prompt_budget + T - 1, shared=False)


def run(
  job: Job, updates: Callable[[Job, Session, RunState], Updates],
  on_step: Callable[[int, dict[str, float]], None] | None = None,
) -> bool:  # fmt: skip
  """Trains until `config.steps`, from the newest checkpoint in the workdir or from the initial policy.

  Returns True when config.steps was reached, False when the run was asked to stop (and has saved).
  """
  c = job.config
  announce_setup(job)
  with Session(job, on_step) as session:
    state, _ = session.restored or run_state.initial(job, session.writer)
    if state.step == 0 and c.eval.on_start:
      session.evaluate(0, state.policy)
    with session.watch():
      for step, learner, metrics, counts in updates(job, session, state):
        state = state._replace(step=step, learner=learner)
        session.push(step, [metrics], counts)
        if due(c.eval.every, step, c.steps):
          session.evaluate(step, state.policy)
        if due(c.checkpoint.every, step, c.steps):
          session.save(state)
        if session.stop_requested():
          break
      session.save(state)
  finish(job, session, state.step)
  return state.step >= c.steps


def timed(job: Job) -> Callable:
  """Returns the run's update, whose seconds are a phase."""

  def update(*inputs):
    with job.rollout.timer.phase("update"):
      return job.programs.update(*inputs)

  return update
