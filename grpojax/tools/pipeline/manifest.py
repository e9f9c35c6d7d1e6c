"""What a stage stands on, and what it has left: manifest.json in its folder, without a clock or a path.

    {"kind", "init", "samples", "reference", "teachers", "config", "files": {name: SHA-256},
     "parents": {stage: hash of its manifest}, "left": {name: SHA-256}}

`files` are those that it reads from elsewhere (inputs.py), and `left` is there once the stage is done.  A
stage whose manifest is no longer what its config, those files and its parents say is stale: it was made from
something else.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from grpojax.config import schema
from grpojax.config import workdir as workdir_lib
from grpojax.runtime import processes, storage
from grpojax.tools.pipeline import inputs
from grpojax.tools.pipeline.inputs import ROWS, digest
from grpojax.tools.pipeline.stages import OFFLINE, ON_POLICY, Stage

NAME = workdir_lib.STAGE
DONE, BEGUN, LEFT, STALE = "done", "begun", "left", "stale"
# Sections of a config that decide what a stage of this kind leaves, of those that a run may not change.
SECTIONS = {
  "base": ("cold_start", "model", "data", "rollout.max_tokens", "env.observation_tokens"),
  "sample": ("seed", "data", "eval", "reward", "sample", "judge"),
  "evaluate": ("seed", "data", "eval", "reward"),
}
NOT_OF = {  # of kinds that are runs
  "sft": ("sample", "judge", "cold_start", "preference"),
  "preference": ("sample", "judge", "cold_start", "sft"),
  "rl": ("sft", "sample", "judge", "cold_start", "preference"),
  "distill": ("sft", "sample", "judge", "cold_start", "preference"),
}
NEVER = ("name", "model.path")  # the first follows from the chain's, the second is of this machine
AGAIN = ("optimizer.fn", "optimizer.learning_rate", "optimizer.warmup_steps")  # which config.sft has, too


class State(NamedTuple):
  """Progress of a stage, and why it is stale where it is."""

  what: str  # DONE, BEGUN, LEFT or STALE
  why: str = ""


def states(stages: list[Stage], workdir: Path) -> dict[str, State]:
  """Returns how far each stage is."""
  found = {}
  for stage in stages:
    found[stage.name] = _state(stage, workdir, found)
  return found


def _state(stage: Stage, workdir: Path, before: dict[str, State]) -> State:
  folder = workdir / stage.name
  if not (folder / NAME).exists():
    return State(LEFT)
  for parent in stage.parents:
    if parent in before and before[parent].what != DONE:
      return State(STALE, f"'{parent}', which it stands on, is {before[parent].what}")
  saved = storage.read_json(folder / NAME)
  if why := difference(saved, describe(stage, workdir)):
    return State(STALE, why)
  if "left" not in saved:
    return State(BEGUN)
  gone = [name for name in saved["left"] if not (folder / name).is_file()]
  return State(STALE, f"{folder / gone[0]} has gone") if gone else State(DONE)


def describe(stage: Stage, workdir: Path) -> dict[str, Any]:
  """Returns the manifest of a stage before it begins; its parents have to be done."""
  config = keys(stage)
  manifests = {name: workdir / name / NAME for name in stage.parents}  # a base that was given has none
  return {
    "kind": stage.kind,
    "init": stage.init,
    "samples": list(stage.samples),
    "reference": stage.reference,
    "teachers": dict(stage.teachers),
    "config": config,
    "files": inputs.of_stage(stage, config, workdir),
    "parents": {name: _hash(storage.read_json(file)) for name, file in manifests.items() if file.exists()},
  }


def keys(stage: Stage) -> dict[str, Any]:
  """Returns the keys of the stage's config, dotted, that decide what it leaves."""
  flat = json.loads(json.dumps(schema.flatten(stage.run_config.to_dict())))
  of = lambda key, sections: any(key == one or key.startswith(f"{one}.") for one in sections)
  found = {}
  for key, value in flat.items():
    row = schema.row(key)
    free = row is not None and row.free and not (key == "steps" and stage.kind in ON_POLICY)
    wanted = of(key, SECTIONS[stage.kind]) if stage.kind in SECTIONS else not of(key, NOT_OF[stage.kind])
    if wanted and not free and key not in (*NEVER, *(AGAIN if stage.kind in OFFLINE else ())):
      found[key] = value
  return found


def difference(saved: dict, now: dict) -> str:
  """Returns in what a saved manifest differs from that of today, as a text; "" for nothing."""
  before, after = saved["config"], now["config"]
  changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
  said = [f"config.{key}: {before.get(key)!r} -> {after.get(key)!r}" for key in changed]
  named = "kind", "init", "samples", "reference", "teachers"
  of_stage = [key for key in named if saved.get(key) != now[key]]
  said += [f"{key}: {saved.get(key)!r} -> {now[key]!r}" for key in of_stage]
  said += _changed(saved["files"], now["files"])
  names = {**saved["parents"], **now["parents"]}
  said += [f"'{name}' is another" for name in names if saved["parents"].get(name) != now["parents"].get(name)]
  return ", ".join(said)


def _changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
  """Returns sentences on the files that differ."""
  differ = [name for name in {**before, **after} if before.get(name) != after.get(name)]
  how = lambda name: "is new" if name not in before else "has changed" if name in after else "has gone"
  return [f"{name} {how(name)}" for name in differ]


def begin(stage: Stage, workdir: Path) -> None:
  """Collective: writes what the stage stands on into its folder."""

  def write():
    (workdir / stage.name).mkdir(parents=True, exist_ok=True)
    _write(workdir / stage.name, describe(stage, workdir))

  processes.on_process_0(write)


def finish(stage: Stage, workdir: Path, names: list[str]) -> None:
  """Collective: notes the files that the stage has left, whose names are relative to its folder."""
  folder = workdir / stage.name

  def write():
    left = {name: digest(folder / name) for name in sorted(names)}
    _write(folder, storage.read_json(folder / NAME) | {"left": left})

  processes.on_process_0(write)


def as_it_ran(stage: Stage, workdir: Path) -> Stage | None:
  """Returns the stage with the numbers of its config that it has run with; None until it has ended.

  A stale one has run with others than today's.
  """
  file = workdir / stage.name / NAME
  saved = storage.read_json(file) if file.exists() else {}
  if "left" not in saved or saved["kind"] != stage.kind:
    return None
  config = stage.config.copy_and_resolve_references()
  known = schema.flatten(config.to_dict())
  numbers = {k: v for k, v in saved["config"].items() if k in known and isinstance(v, int | float | str)}
  with config.unlocked(), config.ignore_type():
    config.update_from_flattened_dict(numbers)
  return stage._replace(config=config)


def evaluated(stage: Stage, folder: Path) -> dict[str, dict[str, float]] | None:
  """Returns what an `evaluate` stage measured on the split that it evaluates, {metric: {value, low, high}}.

  None until it is done.
  """
  if not (folder / "summary.json").is_file():
    return None
  suites = storage.read_json(folder / "summary.json")["suites"]
  return suites.get(stage.config.eval.split, next(iter(suites.values())))["metrics"]


def check_policy(name: str, workdir: Path) -> None:
  """Raises ValueError where a file of the policy that stage `name` has left is not what it had written."""
  folder = workdir / name
  for file, written in storage.read_json(folder / NAME)["left"].items():
    if digest(folder / file) != written:
      raise ValueError(
        f"stage '{name}': {folder / file} is not what the stage had written; bring it back, or delete"
        f" {folder} and run it again."
      )


def edited(workdir: Path, name: str) -> bool:
  """Returns True if the rows of a `sample` stage are no longer those that it had written."""
  saved = storage.read_json(workdir / name / NAME)
  return saved["left"][ROWS] != digest(workdir / name / ROWS)


def _hash(content: dict) -> str:
  return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _write(folder: Path, content: dict) -> None:
  storage.write(folder / NAME, json.dumps(content, indent=1, sort_keys=True))
