"""One step: ask, answer, grade, compare, learn.  The map of the program; nobody imports it but main.

    data -> sampler -> rewards -> objective -> learner -> checkpoint, evaluate, report
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax import (
  adapters,
  adaptive,
  answers,
  batches,
  checkpoint,
  console,
  difficulty,
  memory,
  metrics,
  peft,
  report,
  rewards,
  rollouts,
  setup,
  sft,
  sharding,
)
from grpojax import config as config_lib
from grpojax import objective as objective_lib
from grpojax.interrupt import Interrupt
from grpojax.learner import State
from grpojax.memory import Memory
from grpojax.models import hf
from grpojax.rollouts import Groups
from grpojax.setup import Job


def prepare(config: ConfigDict, workdir: Path) -> Job:
  """Everything that can be wrong with a config is found here.  Raises ValueError."""
  config_lib.check(config, jax.device_count())
  scorer = rewards.build(config.reward)
  of_steps = config.process.scorer
  of_steps = rewards.load_scorer(of_steps, config.process.knobs) if of_steps else None
  objective = objective_lib.build(config.objective)
  data = setup.load_data(config, scorer.needs)
  checkpoint.claim_workdir(workdir, config)
  mesh = sharding.make_mesh(config.mesh)
  model = setup.build_model(config, data.tokenizer, mesh)
  if config.lora.path:
    peft.check(Path(config.lora.path).expanduser(), config.lora, model)
  setup.check_prompts(model, data.train, data.held_out)
  programs = setup.build_programs(config, model, data.tokenizer, mesh)
  return Job(config, workdir, scorer, data, mesh, model, objective, programs, of_steps)


def run(job: Job) -> None:
  """Trains until `config.steps`, from the newest checkpoint in `workdir` or from the cold start."""
  config, workdir, data = job.config, job.workdir, job.data
  announce(config, workdir, job.mesh, job.model, data)
  checkpoints = checkpoint.open_checkpoints(workdir, config.checkpoint.keep)
  restored = checkpoint.latest(checkpoints, *layout(job))
  first = step = restored[1]["step"] if restored else 0
  timer, troubles = metrics.Timer(), Counter()
  with metrics.Writer(workdir, first) as writer:
    start = resume(job, restored) if restored else begin(job, writer, timer, troubles)
    state, frozen, reference, known = start
    if not restored:
      writer.write("eval", 0, answers.held_out(job, timer, frozen | state.params) | timer.take())

    with Interrupt() as interrupt, console.bar(config.steps, first, config.verbose) as progress:
      stop = step >= config.steps
      while not stop:
        step += 1
        policy = frozen | state.params
        ask = partial(answers.answer_and_grade, job, timer, troubles, policy, step)
        draw = partial(data.stream.next, memory.weights(config, known, data.train.weights))
        groups, outcomes, stats = collector(config)(draw, ask)
        seen = stats | rollouts.describe(groups)
        with timer.phase("logprob"):  # of all batches, before any update moves the policy
          origin = reference and frozen | reference
          dealt, known = compare(job, policy, origin, known, groups, outcomes, seen["reward"])
        with timer.phase("update"):
          state, learned = learn(job, state, frozen, known, dealt)
          reference = follow(job, step, reference, state.params)

        seen = learned | seen | troubles | timer.take()
        seen |= rates(seen)
        known = memory.after(config, known, seen)
        seen |= memory.describe(config, known)
        troubles.clear()
        writer.write("train", step, seen)
        writer.completions(step, answers.showcase(data.tokenizer, groups))
        console.advance(progress, step, seen)

        if step % config.eval.every == 0 or step == config.steps:
          writer.write("eval", step, answers.held_out(job, timer, frozen | state.params) | timer.take())
        stop = step == config.steps or interrupt.asked  # asked once: what stops has been saved
        if step % config.checkpoint.every == 0 or stop:
          writer.flush()
          host = {"step": step, "stream": data.stream.get_state()}
          checkpoint.save(checkpoints, step, (state, reference, on_mesh(job.mesh, known)), host)
    checkpoint.finish(checkpoints)
    checkpoints.close()
  if jax.process_index() == 0:
    finish(config, workdir, first, step)


def begin(job: Job, writer: metrics.Writer, timer, troubles) -> tuple[State, dict, dict | None, Memory]:
  """(state, frozen, reference, memory) of a new run: a folder's or the cold start's policy."""
  config, data = job.config, job.data
  if "path" in config.model:
    params = hf.load(setup.model_folder(config), job.model, job.mesh)
  else:
    base = job.model._replace(lora=None)
    params = sft.cold_start(config, base, job.mesh, data.train, data.tokenizer, writer)
  frozen, params = adapters.begin(config, job.workdir, job.model, job.mesh, params)
  reference = jax.tree.map(jnp.copy, params) if config.reference else None
  known = memory.start(config, len(data.train.records))
  if config.difficulty.offline:
    surveyed = answers.survey(job, timer, troubles, frozen | params, known.difficulty)
    known = known._replace(difficulty=surveyed)
  return job.programs.fresh(params), frozen, reference, known


def resume(job: Job, restored) -> tuple[State, dict, dict | None, Memory]:
  """(state, frozen, reference, memory) of a checkpoint; the data stream goes back to where it was."""
  (state, reference, known), host = restored
  job.data.stream.set_state(host["stream"])
  frozen = adapters.frozen(job.config, job.workdir, job.model, job.mesh)
  console.say(f"resumed after step {host['step']} of {job.config.steps}")
  return state, frozen, reference, jax.tree.map(np.asarray, known)


def collector(config: ConfigDict) -> Callable:
  """(draw, ask) -> groups, outcomes, stats: how a step gets its groups."""
  if config.adaptive_group.stop:
    return partial(adaptive.collect, config.adaptive_group)
  return partial(rollouts.collect, config.dynamic_sampling)


def compare(job: Job, params, reference, known: Memory, groups: Groups, outcomes, reward: float):
  """(batches with what was expected and all log-probs, memory that has taken note of the outcomes)."""
  config, logp = job.config, job.programs.logp
  rows = answers.rows_of(job.data, groups.prompts.id)
  dealt = batches.deal(config, job.mesh, groups, memory.baseline(config, known, rows, reward))
  dealt = [batches.with_logps(logp, params, reference, batch) for batch in dealt]
  jax.block_until_ready(dealt)
  if known.difficulty is None:
    return dealt, known

  d, keep = known.difficulty, None
  if d.last:
    now = batches.logps_of(config, job.mesh, logp, params, groups.prompts, d.last.tokens[rows])
    keep = sharding.gather(difficulty.keep(d, rows, now))
    old_logp = batches.gathered([batch.old_logp for batch in dealt])
    last = difficulty.Last(groups.rollout.tokens, groups.rollout.length, old_logp)
    d = difficulty.saw(d, *sharding.gather((rows, last)))
  outcomes = sharding.gather(outcomes)
  drawn = answers.rows_of(job.data, outcomes.id)
  d = difficulty.update(config.difficulty, d, drawn, outcomes, keep)
  return dealt, known._replace(difficulty=d)


def learn(job: Job, state: State, frozen: dict, known: Memory, dealt: list) -> tuple[State, dict[str, float]]:
  """One update per batch; their metrics are one step's."""
  objective = objective_lib.scale_kl(job.objective, known.kl_scale)
  objective = jax.device_put(objective, sharding.replicated(job.mesh))  # its numbers are arguments
  learned = []
  for batch in dealt:
    state, of_update = job.programs.update(state, objective, batch, frozen)
    learned.append(of_update)
  return state, metrics.over_updates(jax.device_get(learned))


def follow(job: Job, step: int, reference, params):
  """The reference, moved towards the policy where this step is due."""
  sync = job.config.reference_sync
  if not sync.every or step % sync.every:
    return reference
  return job.programs.follow(reference, params, sync.rate)


def rates(seen: dict[str, float]) -> dict[str, float]:
  """Sampled tokens over the seconds of a phase; the shares of slots at work and of padding in prefill."""
  phases = ("rollout", "update")
  shares = {f"tokens_per_second/{p}": seen["num_tokens"] / seen[f"time/{p}"] for p in phases}
  if "rollout/slot_steps" in seen:
    shares["rollout/slot_utilisation"] = seen["rollout/fed_slot_steps"] / max(seen["rollout/slot_steps"], 1)
    shares["rollout/prefill_padding"] = 1 - seen["rollout/prompt_tokens"] / seen["rollout/prefill_columns"]
  return shares


def on_mesh(mesh: Mesh, tree):
  """Host arrays, the same on every process -> the mesh, which copies them for the checkpoint."""
  return jax.device_put(tree, sharding.replicated(mesh))


def layout(job: Job):
  """Shapes and shardings of what a checkpoint's tree holds: (state, reference, memory)."""
  config, model, mesh = job.config, job.model, job.mesh
  shapes, where = setup.state_layout(config, model, mesh)
  reference = (shapes.params, where.params) if config.reference else (None, None)
  known = memory.start(config, len(job.data.train.records))
  everywhere = jax.tree.map(lambda _: sharding.replicated(mesh), known)
  return (shapes, reference[0], known), (where, reference[1], everywhere)


def announce(config: ConfigDict, workdir: Path, mesh, model, data) -> None:
  """What runs, on what, in a few lines."""
  size = sum(x.size for x in jax.tree.leaves(model.shapes))
  trained = sum(x.size for x in jax.tree.leaves(model.trained.shapes))
  frozen = f" frozen, {trained:,} in adapters" if model.lora else ""
  axes = " x ".join(f"{axis} {n}" for axis, n in mesh.shape.items())
  console.say(
    f"{config.name}:{config.scale} in {workdir}: {size / 1e6:.2f} M parameters{frozen}, mesh {axes} on "
    f"{mesh.size} of {jax.device_count()} {jax.devices()[0].device_kind} device(s), "
    f"{jax.process_count()} process(es)"
  )
  for split in (data.train, data.held_out):
    dropped = f", {split.dropped} dropped over config.data.prompt_budget" if split.dropped else ""
    console.say(f"{split.name}: {len(split.records)} prompts{dropped}")
    for note in split.notes:
      console.say(f"  {note}")
  c = config.rollout
  slots = setup.slots_of(config, model, mesh, c.group_size, c.max_tokens, c.kv_cache)
  if slots < min(c.slots, c.prompts * c.group_size):
    console.say(f"rollout: {slots} of {c.slots} slots, as many as fit in config.rollout.kv_memory_gb")
  for notice in objective_lib.notices(config):
    console.say(f"note: {notice}")
  if config.updates_per_rollout == 1:
    console.say("One update per rollout is on-policy: ratios are 1, nothing clips, loss is near 0.")


def finish(config: ConfigDict, workdir: Path, first: int, step: int) -> None:
  """The report and the final table, or where an interrupted run stands."""
  report.write(workdir)
  if step < config.steps:
    console.say(f"Stopped after step {step} and saved; the same command goes on from there.")
    return
  if first >= config.steps:
    console.say(f"This run is finished at step {first}; raise --config.steps, or take another --workdir.")
  records = metrics.read(workdir)
  evals = [r for r in records if r["kind"] == "eval"]
  console.final_table(evals[0], evals[-1], workdir / "report.html", metrics.phase_seconds(records))
