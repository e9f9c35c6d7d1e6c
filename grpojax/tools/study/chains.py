"""Runs that are pipelines: when one is done, and its records as those of one run.

A config with `stages` is a pipeline.  Its stages follow each other on one axis of steps: each training step,
and the answers of each `sample` stage, take one.  Its evaluations are those of its `evaluate` stages, and
those that the stages of its last policy make as they train: before the first step, too, so that what others
have spent until then has brought it nothing.
"""

from pathlib import Path

from ml_collections import ConfigDict

from grpojax.runtime import metrics
from grpojax.tools.pipeline import manifest, stages
from grpojax.tools.pipeline.stages import BASE, Stage

OWN = "own_tokens"  # num_tokens of the stages that train the last policy, or its ancestors; else 0
METRIC = "eval/pass@1"
AFTER = "after/"  # and the name of an `evaluate` stage: METRIC, in that stage's record alone


def is_chain(config: ConfigDict) -> bool:
  return "stages" in config


def is_done(config: ConfigDict, workdir: Path) -> bool:
  """Returns True where all stages are done.  Raises ValueError where one was made from another config."""
  found = manifest.states(stages.read(config), workdir)
  for name, (what, why) in found.items():
    if what == manifest.STALE:
      raise ValueError(
        f"{workdir} has the pipeline of another config (stage '{name}': {why}); choose another --out, or"
        " delete that folder."
      )
  return all(what == manifest.DONE for what, _ in found.values())


def records(config: ConfigDict, workdir: Path) -> list[dict]:
  """Returns the records of the stages that have begun, as one run's, without those of bases."""
  found, step, chain = [], 0, stages.read(config)
  own = _line(chain)
  for stage in chain:
    folder = workdir / stage.name
    if stage.kind == BASE or not (folder / "metrics.jsonl").exists():
      continue
    written = metrics.read(folder)
    if stage.kind == "evaluate":
      found += _evaluation(stage, folder, written, step)
      continue
    kind = "eval" if stage.kind == "sample" else "train"  # as metrics.jsonl has what a stage samples
    for record in written:
      if record["kind"] == kind:
        step += 1
        mine = record["num_tokens"] if stage.name in own else 0
        seconds = record.get("time/step", record.get("time/eval", 0.0))
        found.append(record | {"kind": "train", "step": step, OWN: mine, "time/step": seconds})
      elif METRIC in record and stage.name in own:
        found.append(record | {"step": step})
  return found


def _evaluation(stage: Stage, folder: Path, written: list[dict], step: int) -> list[dict]:
  """Returns the stage's record, with the metrics of the split that is evaluated; [] until it is done."""
  measured = manifest.evaluated(stage, folder)
  if measured is None:
    return []
  (record,) = written
  values = {f"eval/{name}": number["value"] for name, number in measured.items()}
  values[f"{AFTER}{stage.name}"] = values[METRIC]
  return [record | values | {"step": step, "time/step": record["time/eval"]}]


def _line(chain: list[Stage]) -> set[str]:
  """Returns the stages whose policies the last one comes from."""
  by_name, name, line = {stage.name: stage for stage in chain}, chain[-1].name, set()
  while name in by_name:
    line.add(name)
    name = by_name[name].init
  return line
