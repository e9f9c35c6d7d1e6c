"""Adapters in the format of PEFT, in both directions: adapter_config.json, adapter_model.safetensors.

A linear layer's lora_A is [rank, in] and its lora_B [out, rank].  https://github.com/huggingface/peft
"""

import itertools
import json
import math
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils
from ml_collections import ConfigDict
from safetensors import safe_open
from safetensors.numpy import save_file

from grpojax.models import Model, names
from grpojax.runtime import sharding, storage

PLAIN = dict(
  peft_type="LORA", use_dora=False, use_rslora=False, fan_in_fan_out=False, bias="none", rank_pattern={},
  alpha_pattern={},
)  # fmt: skip
NEWER = dict(use_qalora=False, alora_invocation_tokens=None)  # also change the sum, and leave no tensor


def tensors(model: Model) -> dict[str, tuple[str, str, tuple[int, ...]]]:
  """Returns name on disk -> (path in our tree, "a" or "b", index on the stacked axes)."""
  found = {}
  for path in model.lora.shapes["adapters"]:
    if ".moe." in path:
      raise ValueError(
        f"config.lora.modules: {path} is part of a mixture, for whose adapters PEFT's format has no common "
        "names; export the merged weights, or leave it out."
      )
    row = names.row(model.spec, path)
    stacked = model.lora.shapes["adapters"][path]["a"].shape[: row.stacked]
    for at, factor in itertools.product(itertools.product(*map(range, stacked)), "ab"):
      linear = row.names(at).removesuffix(".weight")
      found[f"base_model.model.{linear}.lora_{factor.upper()}.weight"] = path, factor, at
  return found


def _shape_on_disk(model: Model, path: str, factor: str) -> tuple[int, int]:
  stacked = names.row(model.spec, path).stacked
  shape = model.lora.shapes["adapters"][path][factor].shape[stacked:]
  return (shape[-1], math.prod(shape[:-1])) if factor == "a" else (math.prod(shape[1:]), shape[0])


def write(trained: dict, model: Model, c: ConfigDict, base: str, out: Path) -> None:
  """Writes the adapters, in float32, to the new folder `out`; Collective: process 0 writes."""
  if out.exists():
    raise ValueError(f"{out} exists already; name a new folder to export to.")
  listed = tensors(model)
  fetch = lambda x: np.asarray(multihost_utils.process_allgather(x, tiled=True))
  whole = jax.tree.map(fetch, trained["adapters"])
  arrays = {}
  for name, (path, factor, at) in listed.items():
    rows, columns = _shape_on_disk(model, path, factor)
    ours = whole[path][factor][at].reshape(columns, rows)
    arrays[name] = np.ascontiguousarray(ours.T)
  if jax.process_index() == 0:
    out.mkdir(parents=True)
    save_file(arrays, out / "adapter_model.safetensors", metadata={"format": "pt"})
    (out / "adapter_model.safetensors").chmod(0o644)  # safetensors makes files that nobody else can read
    (out / "adapter_config.json").write_text(json.dumps(_config(listed, c, base), indent=2, sort_keys=True))


def _config(listed: dict, c: ConfigDict, base: str) -> dict:
  targets = sorted({name.split(".lora_")[0].split(".")[-1] for name in listed})
  return PLAIN | dict(
    task_type="CAUSAL_LM", base_model_name_or_path=base, r=c.rank, lora_alpha=c.alpha,
    target_modules=targets, lora_dropout=0.0, init_lora_weights=True, inference_mode=True,
  )  # fmt: skip


def check(folder: Path, c: ConfigDict, model: Model) -> None:
  """Raises ValueError in one sentence if the folder's adapters are not those that `config.lora` describes."""
  lost = [n for n in ("adapter_config.json", "adapter_model.safetensors") if not (folder / n).is_file()]
  if lost:
    raise ValueError(f"config.lora.path = '{folder}' lacks {' and '.join(lost)}; name a folder of PEFT's.")
  theirs = storage.read_json(folder / "adapter_config.json")
  ours = dict(r=c.rank, lora_alpha=c.alpha) | PLAIN | NEWER
  differ = {k: theirs[k] for k in ours.keys() & theirs.keys() if (theirs[k] or None) != (ours[k] or None)}
  wrong = [f"{key} = {value!r} for {ours[key]!r}" for key, value in sorted(differ.items())]
  wanted, there = tensors(model), _shapes(folder)
  wrong += [f"no {name}" for name in sorted(wanted.keys() - there.keys())][:4]
  wrong += [f"unexpected {name}" for name in sorted(there.keys() - wanted.keys())][:4]
  for name in sorted(wanted.keys() & there.keys()):
    path, factor, _ = wanted[name]
    shape = _shape_on_disk(model, path, factor)
    wrong += [f"{name} is {there[name]} for {shape}"] if there[name] != shape else []
  if wrong:
    raise ValueError(
      f"config.lora.path = '{folder}' does not hold the adapters that config.lora and the model describe: "
      f"{'; '.join(wrong)}."
    )


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
  with safe_open(folder / "adapter_model.safetensors", framework="np") as opened:
    return {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118


def load(folder: Path, model: Model, mesh) -> dict:
  """Reads the adapters of a folder that `check` accepted, in float32, onto the mesh."""
  whole = {
    path: {factor: np.empty(shape.shape, np.float32) for factor, shape in pair.items()}
    for path, pair in model.lora.shapes["adapters"].items()
  }
  with safe_open(folder / "adapter_model.safetensors", framework="np") as opened:
    for name, (path, factor, at) in tensors(model).items():
      ours = whole[path][factor]
      ours[at] = opened.get_tensor(name).astype(np.float32).T.reshape(ours[at].shape)
  where = sharding.param_shardings(mesh, model.lora.axes, model.lora.shapes, model.rules)
  return jax.device_put({"adapters": whole}, where)
