"""The head of a run's report: model, data, recipe, devices, code, and the objective as a formula."""

import json
from pathlib import Path

import jax

from grpojax.objective import text
from grpojax.runtime import processes, storage
from grpojax.train.setup import Job


def write(folder: Path, job: Job) -> None:
  """Writes about.json, {title: text}, on process 0."""
  if jax.process_index() == 0:
    storage.write(folder / "about.json", json.dumps(describe(job), indent=2))


def describe(job: Job) -> dict[str, str]:
  """Returns one text for each title."""
  config, model, devices = job.config, job.model, job.mesh.devices
  size = sum(x.size for x in jax.tree.leaves(model.shapes))
  trained = sum(x.size for x in jax.tree.leaves(model.trained.shapes))
  adapters = f", of which {trained:,} in adapters are trained" if model.lora else ""
  name = config.model.get("path") or "a small model of its own, from a cold start"
  train, held_out = job.data.train, job.data.held_out
  task = config.data.get("path") or config.data.task
  r, kind = config.rollout, devices.flat[0].device_kind
  a_step = f"{r.prompts} prompts x {r.group_size} completions"
  if train.name in ("sft", "preference"):
    a_step = f"{config[train.name].batch_size} {'conversations' if train.name == 'sft' else 'pairs'}"
  return {
    "model": f"{name}: {size / 1e6:.2f} M parameters{adapters}",
    "data": f"{task}: {len(train.records)} prompts, {len(held_out.records)} held out",
    "recipe": f"{config.name}:{config.scale}, {a_step} a step",
    "device": f"{devices.size} x {kind}, {jax.process_count()} process(es), jax {jax.__version__}",
    "code": f"commit {processes.commit()}, grpojax {processes.code()['grpojax']}",
    "objective": "\n".join(text.formula(config.objective.to_dict())),
  }
