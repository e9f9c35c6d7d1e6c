"""Policies to evaluate: the parameters that --checkpoint names, and a fingerprint of their values."""

import hashlib
import json
import re
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from grpojax.config import workdir as workdir_lib
from grpojax.data import pipeline, text
from grpojax.models import Model, hf
from grpojax.runtime import checkpointer, checksums, metrics, storage
from grpojax.tools import export
from grpojax.train import cold_start
from grpojax.train import policy as policy_lib


class Policy(NamedTuple):
  folder: Path | None  # a run's workdir, or a folder in Hugging Face's layout; None: the cold start
  step: int | None  # of the run; None: not a run

  def __str__(self):
    if self.folder is None:
      return "the cold start"
    return str(self.folder) if self.step is None else f"{self.folder} after step {self.step}"

  def results(self, config: ConfigDict) -> Path:
    """Returns the default folder of the policy's results."""
    if self.step is not None and isinstance(self.folder, Path):
      return self.folder / "eval" / f"step_{self.step}"
    name = f"cold_start_{config.scale}"
    if self.folder:
      whole = self.folder.resolve()
      name = f"{whole.parent.name}_policy" if whole.name == "policy" else whole.name  # of a pipeline's stage
    return Path("runs/eval") / (name if self.step is None else f"{name}_step_{self.step}")


def find(checkpoint: str, config: ConfigDict) -> tuple[Policy, ConfigDict]:
  """Returns the policy that --checkpoint names, and `config` with that policy's config.model.

  "" is the folder config.model.path, or the task's cold start; "runs/dapo" the newest checkpoint of
  that run, "runs/dapo@200" the one after step 200; else a folder in Hugging Face's layout.  Raises
  ValueError for what is none of them.
  """
  if not checkpoint:
    return Policy(policy_lib.model_folder(config) if "path" in config.model else None, None), config
  path, step = re.fullmatch(r"(.+?)(?:@(\d+))?", checkpoint).groups()
  folder, step = storage.resolve(path, "--checkpoint"), None if step is None else int(step)
  described = (folder / "config.json").is_file()
  if described and (folder / "checkpoints").is_dir():
    model = workdir_lib.read(folder, "--checkpoint").model
    return Policy(folder, _saved(checkpoint, folder, step)), _with_model(config, model)
  if described and step is None and any(folder.glob("*.safetensors")):
    precision = {key: config.model.get(key, "float32") for key in ("dtype", "param_dtype")}
    precision["head_dtype"] = config.model.get("head_dtype", "")
    return Policy(folder, None), _with_model(config, dict(path=path, **precision))
  raise ValueError(
    f"--checkpoint={checkpoint} is neither the workdir of a run (with config.json and checkpoints/, and"
    " @STEP behind it) nor a folder in Hugging Face's layout (config.json, *.safetensors); name one."
  )


def _saved(checkpoint: str, workdir: Path, step: int | None) -> int:
  """Returns the step to read: the newest if None."""
  steps = checkpointer.steps(workdir)
  if not steps or (step is not None and step not in steps):
    raise ValueError(
      f"--checkpoint={checkpoint}: of this run the steps {steps} are saved; name one of them, or another run."
    )
  return steps[-1] if step is None else step


def _with_model(config: ConfigDict, model: dict) -> ConfigDict:
  config = config.copy_and_resolve_references()
  with config.unlocked():
    config.model = ConfigDict(model)
  config.cold_start.steps = 0
  return config


def load(policy: Policy, config: ConfigDict, model: Model, mesh, train: pipeline.Split | None, out: Path):
  """Loads parameters onto the mesh.  A cold start learns from the rows `train` and records to `out`."""
  if policy.step is not None:
    return export.checkpoint_params(policy.folder, model, mesh, policy.step)[1]
  if policy.folder:
    return hf.load(policy_lib.model_folder(config), model, mesh)
  with metrics.Writer(out / "cold_start") as writer:
    return cold_start.cold_start(config, model, mesh, train, text.load_tokenizer(), writer)


def fingerprint(params: dict) -> str:
  """Returns a hash of all parameters' bits: equal for equal values, whatever file or mesh held them."""
  content = checksums.of_leaves(params), [np.shape(x) for x in jax.tree.leaves(params)]
  return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
