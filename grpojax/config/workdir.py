"""Keeps a workdir to one run: its config in config.json, its name and what it has saved in run.json.

Both are written by the process that holds the workdir's lock.
"""

import json
import time
import uuid
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from grpojax.config import schema
from grpojax.runtime import storage

STAGE = "manifest.json"  # of each stage of a pipeline, in its folder inside the pipeline's


class Run(NamedTuple):
  """A run as its workdir knows it beside the records and the checkpoints."""

  id: str  # of this run alone, also among runs with one config; every checkpoint has it
  since: str  # UTC
  saved: int = 0  # step of the newest checkpoint that was committed


def read(workdir: Path, flag: str = "--workdir") -> ConfigDict:
  """Returns the config of a run, which `flag` names.  Raises ValueError for a folder that is none's."""
  path = workdir / "config.json"
  found = storage.read_json(path) if path.is_file() else {}
  if "rollout" not in found:  # a model's folder has a file of that name, too
    raise ValueError(f"{flag}={workdir} is no run: it has no config.json of one.")
  return ConfigDict(found)


def check(workdir: Path, config: ConfigDict) -> None:
  """Raises ValueError naming every key of config.json that differs and is not free to change.

  And for the folder of a pipeline, whose report a run would write over.
  """
  if not (workdir / "config.json").exists() and any(workdir.glob(f"*/{STAGE}")):
    raise ValueError(f"--workdir={workdir} has a pipeline; a run needs a folder of its own, so name another.")
  if changed := differences(workdir, config):
    raise ValueError(
      f"--workdir={workdir} belongs to a run with another config ({changed}); "
      "choose another --workdir or give the same config."
    )


def differences(workdir: Path, config: ConfigDict) -> str:
  """Returns `changes` from the workdir's config.json to `config`; "" where there is no such file."""
  path = workdir / "config.json"
  return changes(storage.read_json(path), config) if path.exists() else ""


def changes(before: dict, config: ConfigDict) -> str:
  """Returns "key: before -> after, ..." of the keys that differ and are not free to change; "" for none.

  `before` is what `plain` gave.  config.checkpoint.allow_changed may make every key free.
  """
  before, after = schema.flatten(before), schema.flatten(plain(config))
  if config.checkpoint.allow_changed in ("config", "all"):
    return ""
  keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
  rows = {key: schema.row(key) for key in keys}
  fixed = [key for key in keys if not (rows[key] and rows[key].free)]
  return ", ".join(f"{key}: {before.get(key)!r} -> {after.get(key)!r}" for key in fixed)


def claim(workdir: Path, config: ConfigDict) -> Run:
  """Writes config.json, and run.json where there is none; returns the run.  Raises as `check` does."""
  check(workdir, config)
  workdir.mkdir(parents=True, exist_ok=True)
  _write(workdir / "config.json", plain(config))
  if (workdir / "run.json").exists():
    return Run(**storage.read_json(workdir / "run.json"))
  return note(workdir, Run(uuid.uuid4().hex, time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())))


def note(workdir: Path, run: Run) -> Run:
  """Writes run.json, and returns the run."""
  _write(workdir / "run.json", run._asdict())
  return run


def plain(config: ConfigDict) -> dict[str, Any]:
  """Returns the config as JSON has it."""
  return json.loads(config.to_json_best_effort())


def _write(path: Path, content: dict) -> None:
  storage.write(path, json.dumps(content, indent=2, sort_keys=True))
