"""Plan of rows x seeds: each run's command, its config as the program will read it, and the cost."""

import math
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from grpojax import objective, rewards
from grpojax.config import check as config_lib
from grpojax.config import commandline
from grpojax.config import workdir as workdir_lib
from grpojax.runtime import metrics, storage
from grpojax.tools.pipeline import stages
from grpojax.tools.study import Row, Study, chains


class Run(NamedTuple):
  row: Row
  seed: int
  workdir: Path
  flags: tuple[str, ...]  # of grpojax.main, without --workdir
  config: ConfigDict

  @property
  def arguments(self) -> list[str]:
    return [*self.flags, f"--workdir={self.workdir}"]


def make(study: Study, out: Path, seeds: int, only: list[str], extra: list[str]) -> list[Run]:
  """Returns every run, seed by seed, so that a study that is stopped early has all rows of the first seeds.

  `only` names rows, by name or number from 1; [] all.  `extra` are flags of every run.  Raises ValueError
  where a row's config is illegal, two rows have the same name, or a study's own key is set.
  """
  rows = chosen(study, only)
  if len({folder(row) for row in rows}) < len(rows):
    raise ValueError(f"Two rows of {study.name} have the same name: {', '.join(row.label for row in rows)}.")
  if seeds < 1:
    raise ValueError(f"--seeds={seeds} is how often every row is run, at least 1.")
  flags = {row.label: [*_not_again(study, rows, row), *extra] for row in rows}
  if any(flag.startswith("--config.seed=") for row in rows for flag in flags_of(row, extra)):
    raise ValueError("config.seed is each run's own, 0, 1, ...: give how many as --seeds.")
  configs = {row.label: checked(row, flags[row.label]) for row in rows}
  _check_together(rows, configs, out)
  return [
    run_of(row, seed, out, flags[row.label], configs[row.label]) for seed in range(seeds) for row in rows
  ]


def _check_together(rows: list[Row], configs: dict[str, ConfigDict], out: Path) -> None:
  """Raises ValueError for a group that is not evaluated before training, and for pipelines in a bucket."""
  is_chain = {label: chains.is_chain(config) for label, config in configs.items()}
  if storage.in_bucket(out) and any(is_chain.values()):
    raise ValueError(
      f"--out={out} is a bucket, and stages of a pipeline hand policies on as folders; name one that"
      " all processes share."
    )
  before = {row.group for row in rows if is_chain[row.label] or configs[row.label].eval.on_start}
  for row in rows:
    if row.group not in before:
      raise ValueError(
        f"Row '{row.label}': config.eval.on_start = False, and no other row of its group is evaluated before"
        " training; leave that key as it is."
      )


def _not_again(study: Study, rows: list[Row], row: Row) -> list[str]:
  """Returns the flag of a row for which the first of its group is evaluated before training."""
  first = next(other for other in rows if other.group == row.group)
  return ["--config.eval.on_start=False"] if study.before_once and row != first else []


def run_of(row: Row, seed: int, out: Path, extra: list[str], config: ConfigDict) -> Run:
  """Returns the run of a row and a seed, whose config is the row's with that seed."""
  config = config.copy_and_resolve_references()
  config.seed = seed
  workdir = out / "runs" / folder(row) / f"seed{seed}"
  return Run(row, seed, workdir, (*flags_of(row, extra), f"--config.seed={seed}"), config)


def chosen(study: Study, only: list[str]) -> list[Row]:
  """Returns the rows with these names or numbers, in the study's order."""
  by_name = {name: row for i, row in enumerate(study.rows, 1) for name in (str(i), row.label)}
  unknown = [name for name in only if name not in by_name]
  if unknown:
    menu = ", ".join(f"{i} {row.label}" for i, row in enumerate(study.rows, 1))
    raise ValueError(f"--rows has '{unknown[0]}', and {study.name} has: {menu}.")
  wanted = [by_name[name] for name in only]
  return [row for row in study.rows if not only or row in wanted]


def named(study: Study, text: str) -> list[str]:
  """Returns the rows that --rows names, with commas between; a row's own name may have commas."""
  words, labels, found = [word.strip() for word in text.split(",") if word.strip()], {}, []
  for row in study.rows:
    labels[tuple(word.strip() for word in row.label.split(","))] = row.label
  while words:
    lengths = [len(label) for label in labels if label == tuple(words[: len(label)])]
    taken = max(lengths, default=1)
    found.append(labels.get(tuple(words[:taken]), words[0]))
    words = words[taken:]
  return found


def folder(row: Row) -> str:
  return slug(row.label)


def slug(text: str) -> str:
  """Returns a name for the file system: "DAPO: ε_high = 0.28" -> "dapo-eps-high-0.28"."""
  return re.sub(r"[^a-z0-9.]+", "-", text.replace("ε", "eps").lower()).strip("-")


def flags_of(row: Row, extra: list[str]) -> list[str]:
  """Returns a run's flags; whole dicts come first, because they replace what they name."""
  changes = sorted(row.changes.items(), key=lambda item: not isinstance(item[1], dict))
  return [f"--config={row.config}", *(f"--config.{key}={value}" for key, value in changes), *extra]


def checked(row: Row, extra: list[str]) -> ConfigDict:
  """Returns the config, by the same parser as the program's.  Raises ValueError in one sentence."""
  try:
    config = commandline.config_of(flags_of(row, extra), check=stages.check_keys_of)
    if chains.is_chain(config):
      stages.read(config)
      return config
    config_lib.check(config, math.prod(max(1, size) for size in _mesh(config)))
    if not config.env.name:
      rewards.build(config.reward)
    objective.build(config.objective)
  except ValueError as error:
    raise ValueError(f"Row '{row.label}': {error}") from error
  return config


def _mesh(config: ConfigDict) -> list[int]:
  return [config.mesh[axis] for axis in ("data", "fsdp", "tensor", "expert", "context")]


def command(run: Run, python: str = "python") -> str:
  """Returns the command that runs this run alone, by this interpreter."""
  program = "grpojax pipeline" if chains.is_chain(run.config) else "grpojax.main"
  return f"{python} -m {program} {shlex.join(run.arguments)}"


def is_done(run: Run) -> bool:
  """Returns True for a complete run.  Raises ValueError where its workdir has another config's run."""
  if chains.is_chain(run.config):
    return chains.is_done(run.config, run.workdir)
  if changes := workdir_lib.differences(run.workdir, run.config):
    raise ValueError(
      f"{run.workdir} has the run of another config ({changes}); choose another --out, or delete that folder."
    )
  return (run.workdir / "checkpoints" / str(run.config.steps)).exists()


def records(run: Run) -> list[dict]:
  """Returns what a run has recorded, without a cold start, which only the first run of a cache has."""
  if chains.is_chain(run.config):
    return chains.records(run.config, run.workdir)
  return [record for record in metrics.read(run.workdir) if record["kind"] != "cold_start"]


class Cost(NamedTuple):
  """Upper bounds of one run: every completion as long as it may be."""

  completions: int
  tokens: int
  updates: int
  evaluated: int  # of the tokens, those of evaluations


def cost(config: ConfigDict) -> Cost:
  """Returns the cost of training and its evaluations, without the cold start, which all runs share.

  That of a pipeline is the sum over its stages that sample while they train.
  """
  if chains.is_chain(config):
    parts = [cost(stage.config) for stage in stages.read(config) if stage.kind in stages.ON_POLICY]
    return Cost(*map(sum, zip(*parts, strict=True))) if parts else Cost(0, 0, 0, 0)
  c, e = config.rollout, config.eval
  tries = config.dynamic_sampling.max_tries if config.dynamic_sampling.enabled else 1
  evaluations = int(e.on_start) + -(-config.steps // e.every)
  trained = config.steps * tries * c.prompts * c.group_size
  held_out = evaluations * e.prompts * e.samples
  evaluated = held_out * e.max_tokens
  updates = config.steps * config.updates_per_rollout
  return Cost(trained + held_out, trained * c.max_tokens + evaluated, updates, evaluated)
