"""Workdirs -> recipes: runs whose configs differ in the seed alone, with their evaluations and compute."""

from itertools import pairwise
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np

from grpojax.config import schema
from grpojax.config import workdir as workdir_lib
from grpojax.runtime import metrics, storage

METRIC = "eval/pass@1"
COMPUTE = {  # unit -> what a training step costs in it
  "tokens": lambda record: record["num_tokens"],  # generated, kept or not
  "seconds": lambda record: record["time/step"],
  "steps": lambda record: 1,
}
EVALUATED = ("eval.", "data.", "reward.accuracy.", "env.")  # keys that decide which questions, and how


class Run(NamedTuple):
  name: str  # as the command line has it
  config: dict  # key -> value, without what may change between a run and its continuation
  seed: int
  curve: dict[int, tuple[float, float]]  # step of an evaluation -> (compute until there, accuracy)


class Recipe(NamedTuple):
  """Runs that differ in their seed alone; evaluations that all of them have, the first before training."""

  label: str
  names: list[str]
  seeds: list[int]
  steps: list[int]  # [N]
  compute: np.ndarray  # [S, N]
  accuracy: np.ndarray  # [S, N]
  left_out: int  # evaluations that some seeds lack


def load(names: list[str], unit: str) -> list[Recipe]:
  """Returns the recipes of these workdirs, in the order of their first runs.  Raises ValueError."""
  if not names:
    raise ValueError("no run is named; write workdirs, as in `grpojax scale runs/gspo-0 runs/gspo-1`.")
  runs = [_read(name, unit) for name in names]
  _check_evaluations(runs)
  groups = {}
  for run in runs:
    groups.setdefault(repr(sorted(run.config.items())), []).append(run)
  return [_recipe(_label(group, list(groups.values())), group) for group in groups.values()]


def _read(name: str, unit: str) -> Run:
  workdir = storage.resolve(name, "RUN")
  flat = schema.flatten(workdir_lib.read(workdir, "RUN").to_dict())
  kept = {key: value for key, value in flat.items() if not ((row := schema.row(key)) and row.free)}
  with storage.mirror(workdir) as (files, _):
    records = metrics.read(files)
  steps = [record for record in records if record["kind"] == "train"]
  spent = {0: 0.0} | dict(
    zip((r["step"] for r in steps), np.cumsum([COMPUTE[unit](r) for r in steps]).tolist(), strict=True)
  )
  evals = [r for r in records if r["kind"] == "eval" and r.get(METRIC) is not None and r["step"] in spent]
  curve = {record["step"]: (spent[record["step"]], record[METRIC]) for record in evals}
  if 0 not in curve:
    raise ValueError(f"RUN = '{name}' has no evaluation before training, which the fit starts from.")
  return Run(name, kept, kept.pop("seed"), curve)


def _check_evaluations(runs: list[Run]) -> None:
  """Raises ValueError where accuracies are not of the same questions, asked in the same way."""
  first = runs[0]
  for run in runs[1:]:
    for key in sorted(first.config.keys() | run.config.keys()):
      mine, other = first.config.get(key), run.config.get(key)
      if key.startswith(EVALUATED) and mine != other:
        raise ValueError(
          f"RUN = '{run.name}' has other data or another evaluation than '{first.name}' (config.{key} ="
          f" {other!r}, not {mine!r}): their accuracies do not compare; give each a command of its own."
        )


def _label(group: list[Run], groups: list[list[Run]]) -> str:
  """Returns the recipe's name; where several have that name, its row of a study, or what it changes.

  A study keeps the runs of a row in a folder of their own, whose name says more than ten changed keys.
  """
  config = group[0].config
  alike = [other for other in groups if other[0].config["name"] == config["name"]]
  if len(alike) == 1:
    return config["name"]
  folders = [{PurePosixPath(run.name).parent.name for run in other} for other in alike]
  if all(len(folder) == 1 for folder in folders) and len(set.union(*folders)) == len(alike):
    return PurePosixPath(group[0].name).parent.name
  configs = [other[0].config for other in alike]
  keys = sorted({key for other in configs for key in other})
  differ = [key for key in keys if len({repr(other.get(key)) for other in configs}) > 1]
  return ", ".join([config["name"], *(f"{key.rpartition('.')[2]}={config.get(key)}" for key in differ)])


def _recipe(label: str, runs: list[Run]) -> Recipe:
  runs = sorted(runs, key=lambda run: run.seed)
  for one, other in pairwise(runs):
    if one.seed == other.seed:
      raise ValueError(
        f"RUN = '{one.name}' and '{other.name}' are of one recipe and one seed, {one.seed}: leave one out."
      )
  every = {step for run in runs for step in run.curve}
  steps = sorted(step for step in every if all(step in run.curve for run in runs))
  pairs = np.array([[run.curve[step] for step in steps] for run in runs])  # [S, N, 2]
  names, seeds = [run.name for run in runs], [run.seed for run in runs]
  return Recipe(label, names, seeds, steps, pairs[..., 0], pairs[..., 1], len(every) - len(steps))
