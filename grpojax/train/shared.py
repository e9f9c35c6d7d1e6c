"""Programs that the runs of one process share, where their configs differ in nothing that decides one."""

import hashlib
from collections.abc import Callable

from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax.config import schema
from grpojax.models import Model
from grpojax.runtime import fetch
from grpojax.train import policy

# Keys of a config that decide no program; "seed" also stands for what begins with it.  An objective is an
# argument of the update, which compiles once for each of its kinds.
NO_PROGRAM = (
  "name", "steps", "seed", "cache_dir", "verbose", "reward", "objective", "checkpoint", "profile_steps",
  "data.train", "data.validation", "data.test", "eval.every", "eval.on_start", "eval.prompts", "cold_start",
  "reference", "baseline", "difficulty", "staleness", "teacher", "sft", "sample", "preference", "judge",
  "model.path",  # what decides one there is in FILES
)  # fmt: skip
FILES = set(fetch.MODEL_FILES) - {".safetensors"}  # of a model's folder: sizes and tokenizer, and no weights


def anew(build: Callable, config: ConfigDict, model: Model, tokenizer, mesh: Mesh, *more):
  """Returns build(config, model, tokenizer, mesh, *more): programs of a run alone."""
  return build(config, model, tokenizer, mesh, *more)


def sharing(built: dict) -> Callable:
  """Returns `anew` that builds the same programs once, and keeps them in `built`.

  What the config does not say, and what NO_PROGRAM leaves out, is in `more`, which is hashable.
  """

  def share(build: Callable, config: ConfigDict, model: Model, tokenizer, mesh: Mesh, *more):
    keys = schema.flatten(config.to_dict()).items()
    decides = build, mesh, _files(config), bool(model.lora), *more
    decides += tuple(f"{key}={value}" for key, value in keys if not key.startswith(NO_PROGRAM))
    if decides not in built:
      built[decides] = build(config, model, tokenizer, mesh, *more)
    return built[decides]

  return share


def _files(config: ConfigDict) -> str:
  """Returns a digest of a model's folder without its weights: stages of a pipeline differ in those alone."""
  digest, folder = hashlib.sha256(), policy.model_folder(config)
  for file in sorted(file for file in folder.iterdir() if file.suffix in FILES):
    digest.update(f"{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
  return digest.hexdigest()
