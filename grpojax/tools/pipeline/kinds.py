"""What a stage of each kind does, from the policy that it is given to the files that it leaves.

A policy goes from stage to stage as a folder in Hugging Face's layout, in the precision of the parameters, so
bit for bit; answers go as samples.jsonl.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import jax
from ml_collections import ConfigDict

from grpojax import train
from grpojax.config import overrides
from grpojax.models import Model, hf
from grpojax.runtime import metrics, processes
from grpojax.tools import export
from grpojax.tools.evaluate import summary
from grpojax.tools.pipeline import answering, sampling
from grpojax.tools.pipeline.answering import Place
from grpojax.tools.pipeline.stages import Stage, from_folder
from grpojax.train import cold_start, preference, sft
from grpojax.train import policy as policy_lib

POLICY = "policy"  # folder of the policy that a stage leaves
LEARNED = "learned.jsonl"  # the rows of all sources that an `sft` or `preference` stage learns
LEARNERS = {"sft": sft, "preference": preference}
SHARD_BYTES = 5 * 10**9  # of a file of weights


def base(stage: Stage, place: Place) -> list[str]:
  """Makes a policy that others start from: the cold start, or that of a folder.

  Records its seconds as those of a start, as a run that makes its own cold start does; one from the cache
  takes few of them, and no tokens.
  """
  begun = time.perf_counter()
  job = train.prepare(stage.config, place.folder, share=place.share)
  model = job.model._replace(lora=None)
  with metrics.Writer(place.folder) as writer:
    if "path" in job.config.model:
      params = hf.load(policy_lib.model_folder(job.config), model, job.mesh)
    else:
      params = cold_start.cold_start(job.config, model, job.mesh, job.data.train, job.data.tokenizer, writer)
    jax.block_until_ready(params)
    writer.write("cold_start", job.config.cold_start.steps, {"time/start": time.perf_counter() - begun})
  return _leave(job.config, model, params, place.folder)


def learn(stage: Stage, place: Place) -> list[str] | None:
  """Learns given answers, or pairs of them."""
  config, learner = from_folder(stage.config, place.policy), LEARNERS[stage.kind]
  if place.rows:
    own = [Path(stage.path).expanduser()] if stage.path else []
    config[stage.kind].path = str(place.folder / LEARNED)
    processes.on_process_0(lambda: _join([*own, *place.rows], place.folder / LEARNED))
  if place.reference:
    config.reference = place.reference
  job = learner.prepare(config, place.folder, place.share)
  return _leave_trained(job, place.folder) if learner.run(job) else None


def reinforce(stage: Stage, place: Place) -> list[str] | None:
  """Trains as `grpojax train` does, by rewards or by a teacher."""
  config = from_folder(stage.config, place.policy)
  for key, folder in place.teachers.items():
    overrides.apply(config, {key: folder})
  if place.reference:
    config.reference = place.reference
  job = train.prepare(config, place.folder, share=place.share)
  return _leave_trained(job, place.folder) if train.run(job) else None


def evaluate(stage: Stage, place: Place) -> list[str]:
  """Answers all held-out questions."""
  config = from_folder(stage.config, place.policy)
  begun = time.perf_counter()
  _, answered = answering.answers(config, place, [], None)

  def write():
    suites = {name: summary.of_suite(items) for name, items in answered.items()}
    summary.write(place.folder, dict(checkpoint=stage.init, suites=suites))
    samples = answering.samples_of(item for items in answered.values() for item in items)
    answering.record(place.folder, {}, samples, begun)

  processes.on_process_0(write)
  return ["summary.json", "items.jsonl"]


KINDS: dict[str, Callable[[Stage, Place], list[str] | None]] = {  # each returns the files that it has left
  "base": base,
  "sft": learn,
  "preference": learn,
  "rl": reinforce,
  "distill": reinforce,
  "sample": sampling.sample,
  "evaluate": evaluate,
}


def _join(files: list[Path], to: Path) -> None:
  """Writes the lines of all files into one."""
  lines = [line for file in files for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
  to.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _leave_trained(job, folder: Path) -> list[str]:
  """Collective: writes the policy of a run's newest checkpoint, adapters merged."""
  model = job.model._replace(lora=None)
  _, params = export.checkpoint_params(job.workdir, model, job.mesh)
  return _leave(job.config, model, params, folder)


def _leave(config: ConfigDict, model: Model, params: dict, folder: Path) -> list[str]:
  """Collective: writes a policy in the precision of its parameters; returns the names of its files."""
  out, dtype = folder / POLICY, config.model.get("param_dtype", "float32")
  processes.on_process_0(lambda: shutil.rmtree(out, ignore_errors=True))  # of a start that was killed
  export.write_folder(params, model.spec, policy_lib.model_folder(config), out, SHARD_BYTES, dtype)
  processes.on_process_0(lambda: None)  # all wait until process 0 has written
  return sorted(f"{POLICY}/{file.name}" for file in out.iterdir())
