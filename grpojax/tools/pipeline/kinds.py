"""What a stage of each kind does, from the policy that it is given to the files that it leaves.

A policy goes from stage to stage as a folder in Hugging Face's layout, in the precision of the parameters, so
bit for bit; answers go as samples.jsonl.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from grpojax import train
from grpojax.data import messages, pairs
from grpojax.models import Model
from grpojax.rollout import estimators
from grpojax.runtime import console, metrics, processes
from grpojax.tools import export
from grpojax.tools.evaluate import benchmark, summary
from grpojax.tools.evaluate.suites import TRAINING
from grpojax.tools.pipeline import pairing, rejection
from grpojax.tools.pipeline.manifest import ROWS
from grpojax.tools.pipeline.stages import Stage, from_folder
from grpojax.train import cold_start, preference, setup, sft

POLICY = "policy"  # folder of the policy that a stage leaves
LEARNED = "learned.jsonl"  # the rows of all sources that an `sft` or `preference` stage learns
LEARNERS = {"sft": sft, "preference": preference}
SHARD_BYTES = 5 * 10**9  # of a file of weights


class Place(NamedTuple):
  """Where a stage works, and what it is given."""

  folder: Path
  policy: str  # folder; "" of the base
  rows: tuple[Path, ...] = ()  # samples.jsonl of the stages whose rows it learns
  reference: str = ""  # folder of a policy of its own; "": as config.reference says


def base(stage: Stage, place: Place) -> list[str]:
  """Makes the policy that the chain starts from: the cold start."""
  job = train.prepare(stage.config, place.folder)
  model = job.model._replace(lora=None)
  with metrics.Writer(place.folder) as writer:
    params = cold_start.cold_start(job.config, model, job.mesh, job.data.train, job.data.tokenizer, writer)
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
  job = learner.prepare(config, place.folder)
  return _leave_trained(job, place.folder) if learner.run(job) else None


def reinforce(stage: Stage, place: Place) -> list[str] | None:
  """Trains as `grpojax train` does."""
  config = from_folder(stage.config, place.policy)
  if place.reference:
    config.reference = place.reference
  job = train.prepare(config, place.folder)
  return _leave_trained(job, place.folder) if train.run(job) else None


def sample(stage: Stage, place: Place) -> list[str]:
  """Answers training questions and leaves what is to be learned.  Raises ValueError where that is nothing."""
  config, c = from_folder(stage.config, place.policy), stage.config.sample
  config.eval.update(samples=c.samples, temperature=c.temperature)
  job, answered, seconds = _answers(config, place, [TRAINING], c.prompts or None)

  def leave():
    (suite,) = job.suites
    records = dict(zip(suite.ids, suite.questions.records, strict=True))
    items = answered[TRAINING]
    rows, counts, said = ROWS_OF[c.rows](stage, records, items)
    counts |= _diversity(items)
    console.say(f"{stage.name}: {said}")
    if not rows:
      raise ValueError(
        f"{said}; raise config.sample.prompts or config.sample.samples, or start it from a better policy"
        " (init)."
      )
    messages.write(place.folder / ROWS, rows)
    _record(place.folder, {f"sample/{name}": n for name, n in counts.items()}, answered, seconds)

  processes.on_process_0(leave)
  return [ROWS]


def _right_answers(stage: Stage, records: dict[str, dict], items: list[dict]) -> tuple[list, dict, str]:
  """Returns (lines of the answers that are kept, counts, the counts in words)."""
  kept, counts = rejection.select(items, stage.config.sample.keep, stage.config.sample.balance)
  to_row = lambda item, text: dict(messages=messages.to_messages(records[item["id"]], text), **_notes(item))
  return [to_row(*one) for one in kept], counts, rejection.sentence(counts)


def _pairs(stage: Stage, records: dict[str, dict], items: list[dict]) -> tuple[list, dict, str]:
  """Returns (lines of the pairs, counts, the counts in words).  Raises ValueError without a demonstration."""
  if stage.config.sample.by == "demonstration":
    if not all(record.get("demonstration") for record in records.values()):
      raise ValueError(
        f"config.sample.by = 'demonstration', and config.data.task = '{stage.config.data.task}' has none; set"
        " it to 'verifier'."
      )
    shown = {name: record["demonstration"] for name, record in records.items()}
    made, counts = pairing.against_demonstration(items, shown)
  else:
    made, counts = pairing.best_and_worst(items, pairing.by_verifier)
  counts["length_correlation"] = pairing.length_correlation(items, pairing.by_verifier)
  to_row = lambda item, chosen, rejected: pairs.to_line(records[item["id"]], chosen, rejected) | _notes(item)
  return [to_row(*one) for one in made], counts, pairing.sentence(counts)


ROWS_OF = {"answers": _right_answers, "pairs": _pairs}  # config.sample.rows


def _diversity(items: list[dict]) -> dict[str, float]:
  """Returns pass@1 and pass@n of n answers, which come together where a policy forgets all other ways."""
  n, correct = items[0]["n"], [item["correct"] for item in items]
  return {f"pass@{k}": float(estimators.pass_at_k(correct, n, k).mean()) for k in {1, n}}


def _notes(item: dict) -> dict[str, str]:
  """Returns what a line says to people beside its messages."""
  return dict(id=item["id"], solved=f"{item['correct']} of {item['n']}")


def evaluate(stage: Stage, place: Place) -> list[str]:
  """Answers all held-out questions."""
  config = from_folder(stage.config, place.policy)
  _, answered, seconds = _answers(config, place, [], None)

  def write():
    suites = {name: summary.of_suite(items) for name, items in answered.items()}
    summary.write(place.folder, dict(checkpoint=stage.init, suites=suites))
    _record(place.folder, {}, answered, seconds)

  processes.on_process_0(write)
  return ["summary.json", "items.jsonl"]


KINDS: dict[str, Callable[[Stage, Place], list[str] | None]] = {  # each returns the files that it has left
  "base": base,
  "sft": learn,
  "preference": learn,
  "rl": reinforce,
  "sample": sample,
  "evaluate": evaluate,
}


def _answers(config: ConfigDict, place: Place, suites: list[str], limit: int | None):
  """Returns (the evaluation, suite -> items on process 0, seconds); goes on where it was stopped."""
  start = time.perf_counter()
  job = benchmark.prepare(config, place.policy, suites, limit)
  params, done = benchmark.begin(job, place.folder)
  answered = benchmark.run(job, place.folder, params, done)
  return job, answered, time.perf_counter() - start


def _record(folder: Path, counts: dict[str, int], answered: dict[str, list[dict]], seconds: float) -> None:
  """Writes the record of a stage that trains nothing: its counts, tokens, and seconds of its last start."""
  samples = [sample for items in answered.values() for item in items for sample in item["samples"]]
  spent = {"num_tokens": sum(sample["length"] for sample in samples), "time/eval": seconds}
  with metrics.Writer(folder) as writer:
    writer.write("eval", 0, counts | spent)


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
  export.write_folder(params, model.spec, setup.model_folder(config), out, SHARD_BYTES, dtype)
  processes.on_process_0(lambda: None)  # all wait until process 0 has written
  return sorted(f"{POLICY}/{file.name}" for file in out.iterdir())
