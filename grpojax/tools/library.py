"""Training as one call, grpojax.run(...): turns its arguments into a config, as the flags of the command do.

docs/library.md explains it.
"""

import copy
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ml_collections import ConfigDict

from grpojax import train
from grpojax.config import check_keys, commandline, overrides, schema
from grpojax.data.local import repository
from grpojax.rewards import callables
from grpojax.runtime import console, storage, streams
from grpojax.tools.trained import Run

ROWS = "data= is a path or a list of rows, each a dict with its prompt and answer"


def run(
  recipe: str | ConfigDict = "grpo",
  *,
  model: str | os.PathLike | None = None,
  data: str | os.PathLike | Iterable[dict] | None = None,
  reward: Callable | str | Mapping[str, Callable | str] | None = None,
  workdir: str | os.PathLike | None = None,
  callback: Callable[[int, dict[str, float]], None] | None = None,
  **changes,
) -> Run:
  """Trains, or goes on with what `workdir` holds, and returns the run.

  `recipe` is what --config takes, or a config; with `model` or `data` its scale is `local` unless it names
  one.  `data` is a path, or rows with the columns `prompt` or `question`, `answer`, and any that a reward in
  memory takes.  `reward` becomes config.reward.accuracy; a dict names several.  `callback(step, metrics)`
  gets each step's record.  `changes` are keys of the config: steps=200, rollout={"prompts": 16},
  **{"optimizer.learning_rate": 1e-5}.

  Raises ValueError for what the command refuses.
  """
  own = model is not None or data is not None
  config = copy.deepcopy(recipe) if isinstance(recipe, ConfigDict) else _load(recipe, own)
  functions = _named(reward)
  changes = _reward_keys(functions) | schema.flatten(changes)
  if model is not None:
    changes["model.path"] = os.fspath(model)
  if data is not None:
    changes = _data_keys(data, changes.get("cache_dir", config.cache_dir)) | changes
  said = overrides.apply(config, changes)
  in_memory = {name: fn for name, fn in functions.items() if callable(fn)}
  _keep_columns(config.data, in_memory.values())
  check_keys.check(config)
  streams.open_all()
  commandline.set_up_jax(config)
  for note in said:
    console.say(f"note: {note}.")
  fields = {config.data.get(field): row for field, row in (("prompt", "question"), ("answer", "answer"))}
  rewards = {name: callables.adapt(fn, fields) for name, fn in in_memory.items()}
  job = train.prepare(config, workdir or f"runs/{config.name}", rewards)
  for fn, split in itertools.product(in_memory.values(), (job.data.train, job.data.held_out)):
    callables.check(fn, fields, split.records)
  return Run(job, train.run(job, callback))


def _load(recipe: str, own: bool) -> ConfigDict:
  """Returns the config of a recipe; `own`: in the scale `local`, where the recipe names none."""
  return commandline.config_of([f"--config={recipe}{':local' if own and ':' not in recipe else ''}"])


def _named(reward) -> dict[str, Callable | str]:
  """Returns name -> function, in memory or as the config names it; a single one is `accuracy`."""
  if reward is None:
    return {}
  return dict(reward) if isinstance(reward, Mapping) else {"accuracy": reward}


def _reward_keys(functions: dict[str, Callable | str]) -> dict[str, Any]:
  """Returns the keys that record the rewards: of those in memory, module and name."""
  name = lambda fn: fn if isinstance(fn, str) else callables.name_of(fn)
  return {f"reward.{key}.fn": name(fn) for key, fn in functions.items()}


def _data_keys(data, cache_dir: str) -> dict[str, Any]:
  """Returns the keys of a path, or of rows, which are written to the cache under a hash of their content.

  So rows are read, checked, counted and compared at a resume as those of any file.
  """
  if isinstance(data, str | os.PathLike):
    return {"data.path": os.fspath(data)}
  rows = list(data)
  if not rows or not all(isinstance(row, dict) for row in rows):
    raise ValueError(f"{ROWS}.")
  try:
    content = "".join(f"{json.dumps(row)}\n" for row in rows)
  except (TypeError, ValueError) as error:
    raise ValueError(f"{ROWS}; JSON cannot write one of them ({error}).") from None
  file = storage.cache(cache_dir, "rows") / f"{hashlib.sha256(content.encode()).hexdigest()[:16]}.jsonl"
  if not file.exists():
    file.parent.mkdir(parents=True, exist_ok=True)
    storage.write(file, content)
  keys = {"data.path": str(file)}
  if "prompt" not in rows[0] and "question" in rows[0]:
    keys["data.prompt"] = "question"
  return keys if "answer" in rows[0] else keys | {"data.answer": ""}


def _keep_columns(config: ConfigDict, functions: Iterable[Callable]) -> None:
  """Sets config.data.meta, where it is empty, to what the rewards take beside question and answer.

  Of a file whose columns config.data names; the layout of a public dataset says itself what is kept.
  """
  if config.task != "local" or not config.path or config.meta:
    return
  if config.layout not in ("", "columns") or (not config.layout and repository.known(config.path)):
    return
  asked = dict.fromkeys(name for fn in functions for name in callables.columns_of(fn))
  further = [name for name in asked if name not in (*callables.FIELDS, config.prompt, config.answer)]
  if further:
    config.meta = "*" if "*" in further else ",".join(further)
