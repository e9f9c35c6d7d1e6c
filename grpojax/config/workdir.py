"""Keeps a workdir to one config: writes its config.json, and names the keys in which another differs."""

import json
from pathlib import Path

from ml_collections import ConfigDict

from grpojax.config import schema
from grpojax.runtime import storage


def claim(workdir: Path, config: ConfigDict) -> None:
  """Writes config.json, or checks `config` against the one that is there; before anything compiles.

  Raises ValueError naming every key that differs and is not free to change.
  """
  if changes := differences(workdir, config):
    raise ValueError(
      f"--workdir={workdir} belongs to a run with another config ({changes}); "
      "choose another --workdir or give the same config."
    )
  workdir.mkdir(parents=True, exist_ok=True)
  now = json.loads(config.to_json_best_effort())
  storage.write(workdir / "config.json", json.dumps(now, indent=2, sort_keys=True))


def differences(workdir: Path, config: ConfigDict) -> str:
  """Returns "key: before -> after, ..." of the keys that differ from config.json and are not free to change.

  The text is empty where there is no such key, or no config.json.
  """
  path = workdir / "config.json"
  if not path.exists():
    return ""
  before = schema.flatten(json.loads(path.read_text()))
  after = schema.flatten(json.loads(config.to_json_best_effort()))
  keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
  rows = {key: schema.row(key) for key in keys}
  fixed = [key for key in keys if not (rows[key] and rows[key].free)]
  return ", ".join(f"{key}: {before.get(key)!r} -> {after.get(key)!r}" for key in fixed)
