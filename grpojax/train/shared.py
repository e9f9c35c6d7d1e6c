"""Programs that the runs of one process share, where their configs differ in nothing that decides one."""

from collections.abc import Callable

from jax.sharding import Mesh
from ml_collections import ConfigDict

from grpojax.config import schema
from grpojax.models import Model

# Keys of a config that decide no program; "seed" also stands for what begins with it.  An objective is an
# argument of the update, which compiles once for each of its kinds.
NO_PROGRAM = (
  "name", "steps", "seed", "cache_dir", "verbose", "reward", "objective", "checkpoint", "profile_steps",
  "data.train", "data.validation", "data.test", "eval.every", "eval.on_start", "eval.prompts", "cold_start",
  "reference", "baseline", "difficulty", "staleness", "teacher", "sft", "sample", "preference", "judge",
)  # fmt: skip


def sharing(build: Callable, built: dict) -> Callable:
  """Returns programs.build that builds the same programs once, and keeps them in `built`."""

  def build_once(config: ConfigDict, model: Model, tokenizer, mesh: Mesh):
    keys = schema.flatten(config.to_dict()).items()
    decides = mesh, *(f"{key}={value}" for key, value in keys if not key.startswith(NO_PROGRAM))
    if decides not in built:
      built[decides] = build(config, model, tokenizer, mesh)
    return built[decides]

  return build_once
