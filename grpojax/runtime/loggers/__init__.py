"""Where a run's records go beside metrics.jsonl: the loggers that config.log.to names, a file each.

A file has a class `Logger`, which is made of a `Run` and has

    write(kind, step, values)      one record of metrics.jsonl; its numbers that are finite, by name
    completions(step, rows)        one sampled group, a dict a completion
    close()

It imports its library at the top, and nobody imports it unless it is named.  What metrics.Writer is given, a
Feed for each or TensorBoard itself, also has flush(), a name, and lost: how many records it did not take.
"""

import importlib
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
from etils import epath

from grpojax.runtime.loggers.feed import Feed

REMOTE = ("wandb", "trackio", "mlflow")  # each also the name of its library and of the extra that brings it
NAMES = ("tensorboard", *REMOTE)


class Run(NamedTuple):
  """The run, as a logger knows it before its first record."""

  id: str  # of run.json: a run that is resumed finds its records by it
  name: str
  project: str
  config: dict[str, Any]  # key -> value
  folder: Path  # where this machine writes the run's files
  resume_step: int  # 0: it begins


def named(to: str) -> list[str]:
  """Returns the names in config.log.to.  Raises ValueError for one that is no logger."""
  names = [name.strip() for name in to.split(",") if name.strip()]
  for name in names:
    if name not in NAMES:
      raise ValueError(
        f"config.log.to = '{to}': there is no logger '{name}'; name some of {', '.join(NAMES)}, with commas"
        " between them, or none."
      )
  return list(dict.fromkeys(names))


def check(to: str) -> None:
  """Raises ValueError where a logger lacks its library, or an account that it needs."""
  for name in named(to):
    module = _module(name, to)
    if name == "wandb" and (lacks := module.lacks()):
      raise ValueError(f"config.log.to = '{to}': {lacks}.")


def open_all(to: str, run: Run, workdir: Path | epath.Path) -> list:
  """Returns the loggers; [] on every process but 0.  Those of REMOTE note in `workdir` what they sent."""
  if jax.process_index() != 0:
    return []
  make = {name: partial(_module(name, to).Logger, run) for name in named(to)}
  mark = lambda name: workdir / "loggers" / f"{name}.json"
  return [Feed(name, make[name], mark(name)) if name in REMOTE else make[name]() for name in make]


def of_kind(kind: str, values: dict[str, float]) -> dict[str, float]:
  """Returns the values under names of their kind, for loggers with one space of names: train/reward."""
  return {name if name.startswith(f"{kind}/") else f"{kind}/{name}": v for name, v in values.items()}


def _module(name: str, to: str):
  try:
    return importlib.import_module(f"grpojax.runtime.loggers.{name}")
  except ImportError as error:
    raise ValueError(
      f"config.log.to = '{to}': {name} cannot be imported ({error}); pip install 'grpojax[{name}]'."
    ) from error
