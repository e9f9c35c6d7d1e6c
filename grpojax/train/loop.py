"""One step: ask, answer, grade, compare, learn.  The map of the program; nobody imports it but main.

    data -> sampler -> rewards -> objective -> learner -> checkpoint, evaluate, report
"""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from grpojax import objective as objective_lib
from grpojax import rewards
from grpojax.config import check as config_lib
from grpojax.data import pipeline
from grpojax.learner import batching
from grpojax.learner.update import State
from grpojax.models import hf, kernels, peft
from grpojax.rollout import curriculum, dynamic_sampling, generate, prefetch, sampler
from grpojax.rollout.dynamic_sampling import Groups
from grpojax.rollout.generate import Asked
from grpojax.rollout.sampler import weights
from grpojax.runtime import checkpoint, console, data_shards, metrics, processes, sharding, storage
from grpojax.runtime.profiling import profiler
from grpojax.runtime.signals import Interrupt
from grpojax.runtime.watchdog import watchdog
from grpojax.train import adapters, guard, run_stats, setup, sft, step_log
from grpojax.train.run_stats import Memory
from grpojax.train.setup import Job
from grpojax.train.step_log import Owed


class Start(NamedTuple):
  """Where a run begins, or goes on."""

  state: State
  frozen: dict  # what no update changes
  reference: dict | None
  known: Memory
  ahead: Asked | None  # with `config.staleness`: the next step's prompts


def prepare(config: ConfigDict, workdir: Path) -> Job:
  """Everything that can be wrong with a config is found here.  Raises ValueError.

  Several processes agree here on code, config, workdir and data.
  """
  said = lambda: checkpoint.flatten(config.to_dict(), "config.") | {"--workdir": workdir}
  processes.assert_equal(lambda: processes.code() | said())
  config_lib.check(config, jax.device_count())
  scorer = rewards.build(config.reward)
  of_steps = config.process.scorer
  of_steps = rewards.load_scorer(of_steps, config.process.knobs) if of_steps else None
  objective = objective_lib.build(config.objective)
  mesh = sharding.make_mesh(config.mesh)
  data_shards.check_sampler(mesh, sharding.sampler_mesh(config.mesh, mesh))
  data = setup.load_data(config, scorer.needs, data_shards.of(mesh))
  splits = data.train, data.held_out
  processes.assert_equal(lambda: {f"split '{s.name}'": pipeline.fingerprint(s) for s in splits})
  model = setup.build_model(config, data.tokenizer, mesh)
  if config.lora.path:
    peft.check(Path(config.lora.path).expanduser(), config.lora, model)
  setup.check_prompts(model, data.train, data.held_out)
  programs = setup.build_programs(config, model, data.tokenizer, mesh)
  first_pass = batching.first_needs_pass(config)
  # Last: who is refused and mends the config shall not find the workdir taken by what was refused.
  processes.on_process_0(lambda: checkpoint.claim_workdir(workdir, config))
  return Job(config, workdir, scorer, data, mesh, model, objective, programs, of_steps, first_pass)


def run(job: Job) -> bool:
  """Trains until `config.steps`, from the newest checkpoint in `workdir` or from the cold start.

  Whether it got there; if not, it was asked to stop, and has saved.
  """
  config, workdir, data, shards = job.config, job.workdir, job.data, data_shards.of(job.mesh)
  announce(job)
  checkpoints = checkpoint.open_checkpoints(workdir, config.checkpoint.keep)
  restored = checkpoint.latest(checkpoints, *layout(job))
  first = step = restored[1]["step"] if restored else 0
  timer, troubles = metrics.Timer(), Counter()
  with storage.mirror(workdir) as (files, push), metrics.Writer(files, first) as writer:
    start = resume(job, timer, restored) if restored else begin(job, writer, timer, troubles)
    state, frozen, reference, known, ahead = start
    if not restored:
      writer.write("eval", 0, generate.held_out(job, timer, frozen | state.params) | timer.take())

    with (
      Interrupt() as interrupt,
      profiler(config.profile_steps, files, first) as profile,
      console.bar(config.steps, first, config.verbose) as progress,
      watchdog(config.guard.minutes, files / f"stacks_{jax.process_index()}.txt") as alive,
    ):
      settle = partial(step_log.settle, config, files, timer, writer, progress)
      owed, stop = None, step >= config.steps
      while not stop:
        step += 1
        alive()
        profile(step)
        asked = ahead or prefetch.ask(job, timer, frozen | state.params, known, step)
        if config.staleness:
          ahead = prefetch.ask(job, timer, frozen | state.params, known, step + 1)
        else:
          known, owed = settle(known, owed), None  # the last step's record, while the device samples
        groups, outcomes, stats = prefetch.collect(job, timer, troubles, known, asked, step)
        asked = asked._replace(flight=None)  # and with it the sampler's own copy of the parameters
        known = settle(known, owed)  # or while it updated and the host scored
        seen = stats | dynamic_sampling.describe(groups, shards) | dynamic_sampling.summed(troubles, shards)
        origin = reference and frozen | reference
        dealt, known = compare(job, timer, asked.params, origin, known, groups, outcomes, seen["reward"])
        if config.staleness:  # the update's parameters replace those that sample ahead
          ahead = ahead._replace(params=frozen | jax.tree.map(jnp.copy, state.params))
        with timer.phase("update"):
          state, learned = learn(job, state, frozen, known, dealt)
          reference = follow(job, step, reference, state.params)
        showcase = generate.showcase(data.tokenizer, groups)
        times = timer.take() if config.staleness else None
        owed = Owed(step, learned, seen, showcase, times, groups)
        troubles.clear()

        stop = step == config.steps or processes.any_process(interrupt.asked)
        evaluates = step % config.eval.every == 0 or step == config.steps
        saves = step % config.checkpoint.every == 0 or stop
        if evaluates or saves:
          known, owed = settle(known, owed), None
        if evaluates:
          alive()
          writer.write("eval", step, generate.held_out(job, timer, frozen | state.params) | timer.take())
        if saves:
          writer.flush()
          push()
          checkpoint.save(checkpoints, step, *kept(job, step, state, reference, known, ahead))
      checkpoint.finish(checkpoints)  # here, where a signal does not yet end the process
    checkpoints.close()
  if jax.process_index() == 0:
    finish(config, files, workdir, first, step)
    push()
  return step >= config.steps


def begin(job: Job, writer: metrics.Writer, timer, troubles) -> Start:
  """A new run: a folder's or the cold start's policy."""
  config, data = job.config, job.data
  with timer.phase("start"):
    if "path" in config.model:
      params = hf.load(setup.model_folder(config), job.model, job.mesh)
    else:
      base = job.model._replace(lora=None)
      params = sft.cold_start(config, base, job.mesh, data.train, data.tokenizer, writer)
  frozen, params = adapters.begin(config, job.workdir, job.model, job.mesh, params)
  reference = jax.tree.map(jnp.copy, params) if config.reference else None
  known = run_stats.start(config, len(data.train.records))
  if config.difficulty.offline:
    surveyed = generate.survey(job, timer, troubles, frozen | params, known.difficulty)
    known = known._replace(difficulty=surveyed)
  return Start(job.programs.fresh(params), frozen, reference, known, None)


def resume(job: Job, timer, restored) -> Start:
  """A checkpoint's run; the data stream goes back to where it was."""
  (state, reference, known, behind), host = restored
  job.data.stream.set_state(host["stream"])
  with timer.phase("start"):
    frozen = adapters.frozen(job.config, job.workdir, job.model, job.mesh)
  console.say(f"resumed after step {host['step']} of {job.config.steps}")
  ahead = None
  if behind:
    prompts = generate.take(job.data, data_shards.of(job.mesh).local(host["ahead"]))
    ahead = prefetch.sample(job, timer, frozen | behind, prompts, host["step"] + 1)
  return Start(state, frozen, reference, jax.tree.map(np.asarray, known), ahead)


def kept(job: Job, step: int, state: State, reference, known: Memory, ahead: Asked | None):
  """(tree, host) of a checkpoint.  What was asked ahead is asked again, of the same policy."""
  host = {"step": step, "stream": job.data.stream.get_state()}
  behind = None
  if ahead:
    behind = {key: ahead.params[key] for key in state.params}
    host["ahead"] = data_shards.of(job.mesh).gather(generate.rows_of(job.data, ahead.prompts.id)).tolist()
  return (state, reference, sharding.everywhere(job.mesh, known), behind), host


def compare(job: Job, timer, params, reference, known: Memory, groups: Groups, outcomes, reward: float):
  """(batches with what was expected and all log-probs, memory that has taken note of the outcomes)."""
  config, logp, gather = job.config, job.programs.logp, data_shards.of(job.mesh).gather
  groups = batching.balanced(config, job.mesh, groups)
  rows = generate.rows_of(job.data, groups.prompts.id)
  dealt = batching.deal(config, job.mesh, groups, run_stats.baseline(config, known, rows, reward))
  with timer.phase("logprob"):  # of all batches, before any update moves the policy
    dealt = batching.compared(logp, params, reference, dealt, job.first_pass)
    if not config.staleness:
      jax.block_until_ready(dealt)
  if known.difficulty is None:
    return dealt, known

  d, keep = known.difficulty, None
  if d.last:
    last = jax.tree.map(lambda x: x[rows], d.last)
    now = batching.logps_of(config, job.mesh, logp, params, groups.prompts, last)
    keep = gather(curriculum.keep(d, rows, now))
    old_logp = batching.gathered([batch.old_logp for batch in dealt])
    last = curriculum.Last(groups.rollout.tokens, groups.rollout.length, old_logp)
    d = curriculum.saw(d, *gather((rows, last)))
  outcomes = gather(outcomes)
  drawn = generate.rows_of(job.data, outcomes.id)
  d = curriculum.update(config.difficulty, d, drawn, outcomes, keep)
  return dealt, known._replace(difficulty=d)


def learn(job: Job, state: State, frozen: dict, known: Memory, dealt: list) -> tuple[State, list[dict]]:
  """One update per batch, started; and the metrics of each, on the device."""
  objective = objective_lib.scale_kl(job.objective, known.kl_scale)
  # Numbers of the objective and the guard are arguments.
  objective, limit = sharding.everywhere(job.mesh, (objective, guard.limit(job.config, known)))
  learned = []
  for batch in dealt:
    state, of_update = job.programs.update(state, objective, batch, frozen, limit)
    learned.append(of_update)
  return state, learned


def follow(job: Job, step: int, reference, params):
  """The reference, moved towards the policy where this step is due."""
  sync = job.config.reference_sync
  if not sync.every or step % sync.every:
    return reference
  return job.programs.follow(reference, params, sync.rate)


def layout(job: Job):
  """Shapes and shardings of a checkpoint's tree: (state, reference, memory, policy that samples ahead)."""
  config, model, mesh = job.config, job.model, job.mesh
  shapes, where = setup.state_layout(config, model, mesh)
  params, none = (shapes.params, where.params), (None, None)
  reference, behind = params if config.reference else none, params if config.staleness else none
  known = run_stats.start(config, len(job.data.train.records))
  everywhere = jax.tree.map(lambda _: sharding.replicated(mesh), known)
  return (shapes, reference[0], known, behind[0]), (where, reference[1], everywhere, behind[1])


def announce(job: Job) -> None:
  """What runs, on what, in a few lines."""
  config, workdir, mesh, model, data = job.config, job.workdir, job.mesh, job.model, job.data
  size = sum(x.size for x in jax.tree.leaves(model.shapes))
  trained = sum(x.size for x in jax.tree.leaves(model.trained.shapes))
  frozen = f" frozen, {trained:,} in adapters" if model.lora else ""
  axes = " x ".join(f"{axis} {n}" for axis, n in mesh.shape.items())
  console.say(
    f"{config.name}:{config.scale} in {workdir}: {size / 1e6:.2f} M parameters{frozen}, mesh {axes} on "
    f"{mesh.size} of {jax.device_count()} {jax.devices()[0].device_kind} device(s), "
    f"{jax.process_count()} process(es)"
  )
  attention, why = kernels.choose(config.attention, model.spec, mesh)
  if why:
    console.say(f"attention: the {attention}, because {why}")
  for split in (data.train, data.held_out):
    dropped = f", {split.dropped} dropped over config.data.prompt_budget" if split.dropped else ""
    console.say(f"{split.name}: {len(split.records)} prompts{dropped}")
    for note in split.notes:
      console.say(f"  {note}")
  c = config.rollout
  own = weights.build(config, "rollout", model, mesh, c.weights)
  if own.sync:
    axes = " x ".join(f"{axis} {n}" for axis, n in own.mesh.shape.items())
    size = f"{own.bytes_per_chip:,} bytes per chip"
    console.say(f"sampler: mesh {axes}, its own copy of the parameters ({size}), made anew for each rollout")
  elif any(mesh.shape[axis] > 1 for axis in sharding.mesh_axes(model.rules["embed"])):
    console.say("note: each decoded token gathers all parameters, unless config.mesh.sampler.tensor is set")
  slots = sampler.build.slots_that_fit(config, model.spec, own.mesh, sampler.build.rollout_spec(config))
  if slots < min(c.slots, c.prompts * c.group_size):
    console.say(f"rollout: {slots} of {c.slots} slots, as many as fit in config.rollout.kv_memory_gb")
  if config.dynamic_sampling.enabled and not prefetch.feeds(job):
    console.say("dynamic sampling: in rounds of all prompts; slots are fed with one process and staleness 0")
  for notice in objective_lib.notices(config):
    console.say(f"note: {notice}")
  if config.updates_per_rollout == 1 and not config.staleness:
    console.say("One update per rollout is on-policy: ratios are 1, nothing clips, loss is near 0.")


def finish(config: ConfigDict, files: Path, workdir, first: int, step: int) -> None:
  """The report and the final table, or where an interrupted run stands."""
  from grpojax.runtime import report  # here: with the library that draws it is a part of every start

  report.write(files)
  if step < config.steps:
    console.say(f"Stopped after step {step} and saved; the same command goes on from there.")
    return
  if first >= config.steps:
    console.say(f"This run is finished at step {first}; raise --config.steps, or take another --workdir.")
  written = metrics.read(files)
  evals = [r for r in written if r["kind"] == "eval"]
  console.final_table(evals[0], evals[-1], workdir / "report.html", metrics.phase_seconds(written))
