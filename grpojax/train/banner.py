"""What a person reads before the first step and after the last."""

from pathlib import Path

import jax

from grpojax import objective as objective_lib
from grpojax.models import Model, kernels
from grpojax.rollout.sampler import build, weights
from grpojax.runtime import console, diagnosis, errors, metrics, sharding
from grpojax.train import auto, step_log
from grpojax.train.setup import Job


def announce(job: Job) -> None:
  """Prints model size, mesh, data, how completions are sampled, and notices on the objective."""
  announce_setup(job)
  config = job.config
  if config.dynamic_sampling.enabled and not job.rollout.streams:
    ahead = "; those of a step to come are as many as the step before took" if config.staleness else ""
    console.say(
      f"dynamic sampling: in rounds of all prompts{ahead}; slots are fed at staleness 0, if no shard of the"
      " batch is that of several processes"
    )
  for notice in objective_lib.notices(config):
    console.say(f"note: {notice}")
  if config.updates_per_rollout == 1 and not config.staleness:
    console.say("One update per rollout is on-policy: ratios are 1, nothing clips, loss is near 0.")


def announce_setup(job: Job) -> None:
  """Prints model size, mesh, data, and how completions are sampled."""
  model = job.model
  _announce_model(job, model)
  for split in (job.data.train, job.data.held_out):
    dropped = f", {split.dropped} dropped over config.data.prompt_budget" if split.dropped else ""
    console.say(f"{split.name}: {len(split.records)} prompts{dropped}")
    for note in split.notes:
      console.say(f"  {note}")
  _announce_sampler(job, model)


def _announce_model(job: Job, model: Model) -> None:
  config, mesh = job.config, job.mesh
  size = sum(x.size for x in jax.tree.leaves(model.shapes))
  trained = sum(x.size for x in jax.tree.leaves(model.trained.shapes))
  frozen = f" frozen, {trained:,} in adapters" if model.lora else ""
  console.say(
    f"{config.name}:{config.scale} in {job.workdir}: {size / 1e6:.2f} M parameters{frozen}, "
    f"mesh {_axes(mesh)} on {mesh.size} of {jax.device_count()} {jax.devices()[0].device_kind} device(s), "
    f"{jax.process_count()} process(es)"
  )
  if chosen := auto.describe(job.asked, config):
    console.say(f"chosen for these devices, and free to be set by --config: {chosen}")
  for teacher in job.teachers:
    size = sum(x.size for x in jax.tree.leaves(teacher.model.shapes))
    console.say(f"teacher: {teacher.path}, {size / 1e6:.2f} M parameters")
  attention, why = kernels.choose(config.attention, model.spec, mesh)
  if why:
    console.say(f"attention: the {attention}, because {why}")


def _announce_sampler(job: Job, model: Model) -> None:
  config, mesh, c = job.config, job.mesh, job.config.rollout
  on, own = sharding.sampler_mesh(config.mesh, mesh), weights.copy_of(config, model, mesh, c.weights)
  if own:
    axes, size = _axes(on), f"{own.bytes_per_chip:,} bytes per chip"
    alone = f" on {on.size} devices of its own" if config.mesh.rollout_devices else ""
    console.say(
      f"sampler: mesh {axes}{alone}, its own copy of the parameters ({size}), made anew for each rollout"
    )
    if alone and not config.staleness:
      console.say("note: with config.staleness = 0 the sampler waits for the learner, and the learner for it")
  if on == mesh and any(mesh.shape[axis] > 1 for axis in sharding.mesh_axes(model.rules["embed"])):
    console.say("note: each decoded token gathers all parameters, unless config.mesh.sampler.tensor is set")
  slots = build.slots_that_fit(config, model.spec, on, build.rollout_spec(config))
  if slots < min(c.slots, c.prompts * c.group_size):
    console.say(f"rollout: {slots} of {c.slots} slots, as many as fit in config.rollout.kv_memory_gb")


def _axes(mesh) -> str:
  return " x ".join(f"{axis} {n}" for axis, n in mesh.shape.items())


def finish(job: Job, session, step: int) -> None:
  """Writes the report and prints the final table, or where an interrupted run stands; on process 0."""
  if jax.process_index() != 0:
    return
  steps, files = job.config.steps, session.files
  _draw(files, job.workdir)
  session.upload()
  written = metrics.read(files)
  step_log.tell(diagnosis.last(written), session.told)
  if step < steps:
    console.say(f"Stopped after step {step} and saved; the same command goes on from there.")
    return
  if session.first >= steps:
    first = session.first
    console.say(f"This run is finished at step {first}; raise --config.steps, or take another --workdir.")
  evals = [r for r in written if r["kind"] == "eval"] or [{}]
  before = evals[0] if evals[0].get("step") == 0 else {}
  console.final_table(before, evals[-1], job.workdir / "report.html", metrics.phase_seconds(written))


def _draw(files: Path, workdir: Path) -> None:
  """Writes the report.  A run that is finished stays finished where the report cannot be drawn."""
  from grpojax.runtime import report  # here: the library that draws would be a part of every start

  try:
    report.write(files)
  except Exception as error:
    console.say(
      f"note: the report could not be drawn ({errors.sentence(error)}); the run has saved; grpojax report"
      f" {workdir} tries again"
    )
