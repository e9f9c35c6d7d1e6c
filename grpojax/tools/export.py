"""Export of parameters to a folder for transformers and vLLM: config.json, tokenizer, safetensors shards.

    grpojax export --workdir=runs/gspo --out=exported/gspo [--dtype=bfloat16]
    grpojax export --workdir=runs/mine --out=exported/adapters --adapters
    grpojax export --workdir=runs/gspo --out=exported/gspo --push=org/name     # private, unless --public

The folder the model came from gives everything but the weights and the card.  Weights that are read and
exported in one dtype are bitwise equal.  Adapters are merged, or written alone in PEFT's format, in float32.
"""

import argparse
import contextlib
import itertools
import json
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # no advice about a missing torch

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from ml_collections import ConfigDict
from safetensors.numpy import save_file

from grpojax.config import workdir as workdir_lib
from grpojax.data import text
from grpojax.models import Model, lora, peft
from grpojax.models import spec as spec_lib
from grpojax.models.names import Row, row
from grpojax.models.spec import Spec
from grpojax.runtime import checkpointer, console, lock, sharding, storage
from grpojax.tools import model_card, push
from grpojax.train import adapters, auto, manifest
from grpojax.train import policy as policy_lib

DTYPES = ("bfloat16", "float16", "float32")
WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pth", ".pt", ".gguf")


class Asked(NamedTuple):
  """Request of an export: its run and its folder, as the flags of the command say."""

  workdir: Path
  out: Path
  dtype: str = "bfloat16"
  adapters: bool = False
  shard_mb: int = 5000
  push: str = ""
  public: bool = False


class Tensor(NamedTuple):
  """One tensor of the new folder, and its index in our parameters."""

  name: str
  shape: tuple[int, ...]  # on disk
  leaf: jax.Array
  row: Row
  at: tuple[int, ...]  # index on the stacked axes


def write_folder(
  params: dict, spec: Spec, source: str | Path, out: str | Path, max_shard_bytes: int, dtype: str,
  card: str = "",
) -> None:  # fmt: skip
  """Writes `params` in `dtype` to the new folder `out`, beside copies of `source`'s other files and the card.

  Collective: all processes gather each tensor and process 0 writes it, holding one shard of at most
  `max_shard_bytes` (or one tensor, if that is more) at a time.  The folder appears under its name when it
  is whole.  Raises ValueError if `out` exists already.
  """
  source, out = Path(source), Path(out)
  if out.exists():
    raise ValueError(f"{out} exists already; name a new folder to export to.")
  shards = plan(tensors(params, spec), max_shard_bytes, dtype)
  partial = out.with_name(out.name + ".partial")
  writes = jax.process_index() == 0
  if writes:
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _copy(source, partial, spec, dtype)
    if card:
      (partial / "README.md").write_text(card, encoding="utf-8")
  for name, members in shards.items():
    arrays = {tensor.name: _fetch(tensor, dtype) for tensor in members}
    if writes:
      save_file(arrays, partial / name, metadata={"format": "pt"})  # transformers asks for this word
      (partial / name).chmod(0o644)  # safetensors makes files that nobody else can read
  if writes:
    if len(shards) > 1:
      (partial / "model.safetensors.index.json").write_text(_index(shards, dtype))
    partial.rename(out)


def tensors(params: dict, spec: Spec) -> list[Tensor]:
  """Returns every tensor of the folder, layer by layer."""
  found = []
  for path, leaf in jax.tree.leaves_with_path(params):
    r = row(spec, ".".join(key.key for key in path))
    shape = r.shape_on_disk(leaf.shape[r.stacked :])
    for at in itertools.product(*map(range, leaf.shape[: r.stacked])):
      found.append(Tensor(r.names(at), shape, leaf, r, at))
  return sorted(found, key=lambda t: t.at[:1])


def plan(listed: list[Tensor], max_shard_bytes: int, dtype: str) -> dict[str, list[Tensor]]:
  """Returns file name -> its tensors, each file filled up to `max_shard_bytes`."""
  shards, room = [], 0
  for tensor in listed:
    size = _bytes(tensor, dtype)
    if size > room or not shards:
      shards.append([])
      room = max_shard_bytes
    shards[-1].append(tensor)
    room -= size
  if len(shards) == 1:
    return {"model.safetensors": shards[0]}
  return {f"model-{i:05}-of-{len(shards):05}.safetensors": shard for i, shard in enumerate(shards, 1)}


def _bytes(tensor: Tensor, dtype: str) -> int:
  return int(np.prod(tensor.shape)) * jnp.dtype(dtype).itemsize


def _fetch(tensor: Tensor, dtype: str) -> np.ndarray:
  """Fetches the whole tensor to this host, as it lies on disk."""
  ours = multihost_utils.process_allgather(tensor.leaf[tensor.at].astype(dtype), tiled=True)
  return tensor.row.to_disk(np.asarray(ours))


def _index(shards: dict[str, list[Tensor]], dtype: str) -> str:
  members = [(name, tensor) for name, listed in shards.items() for tensor in listed]
  total = sum(_bytes(tensor, dtype) for _, tensor in members)
  weight_map = {tensor.name: name for name, tensor in members}
  return json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2, sort_keys=True)


def _copy(source: Path, out: Path, spec: Spec, dtype: str) -> None:
  """Copies everything but the weights and the model card, which describes another model."""
  for file in sorted(source.iterdir()):
    if file.is_file() and not file.name.endswith(WEIGHTS) and file.name != "README.md":
      shutil.copyfile(file, out / file.name)
  file = source / "config.json"  # the embedded tokenizer's folder has none
  config = storage.read_json(file) if file.is_file() else spec_lib.to_config(spec)
  key = "dtype" if "dtype" in config else "torch_dtype"
  if config.get(key) != dtype:  # readers take the weights' precision from here
    (out / "config.json").write_text(json.dumps(config | {key: dtype}, indent=2))


def checkpoint_params(workdir: Path, model: Model, mesh, step: int | None = None) -> tuple[int, dict]:
  """Returns (steps taken, parameters) of the newest checkpoint or of `step`, adapters merged."""
  config = workdir_lib.read(workdir)
  if not config.get("lora", {}).get("rank"):
    return trained_params(workdir, model, mesh, step)
  model = policy_lib.with_adapters(config, model)
  step, trained = trained_params(workdir, model, mesh, step)
  frozen = adapters.frozen(config, workdir, model, mesh)
  saved = checkpointer.host_state(workdir, step)["frozen"]
  if other := manifest.frozen_differences(saved, frozen, config):
    raise ValueError(f"checkpoint {step} in --workdir={workdir} has adapters, and {other}; bring them back.")
  where = sharding.param_shardings(mesh, model.axes, model.shapes, model.rules)
  merge = jax.jit(lambda p: lora.merge_all(p, model.spec, model.lora.scale), out_shardings=where)
  return step, merge(frozen | trained)


def trained_params(workdir: Path, model: Model, mesh, step: int | None = None) -> tuple[int, dict]:
  """Returns (steps taken, trained parameters or adapters) of the newest checkpoint or of `step`."""
  axes, shapes = model.trained.axes, model.trained.shapes
  where = sharding.param_shardings(mesh, axes, shapes, model.rules)
  return checkpointer.trained(workdir, shapes, where, step)


def check(asked: Asked) -> None:
  """Raises ValueError for what forbids an export, before anything is read; makes the repository of `push`."""
  if asked.out.exists():
    raise ValueError(f"{asked.out} exists already; name a new folder to export to.")
  if asked.shard_mb < 1:
    raise ValueError(f"--shard_mb={asked.shard_mb} holds no tensor; a shard has at least 1 MB.")
  if jax.process_index() == 0:
    storage.make_folder(asked.out.parent, "--out")
    if asked.push:
      push.prepare(asked.push, asked.public)


def write(asked: Asked, config: ConfigDict, model: Model, step: int, params: dict) -> None:
  """Writes the folder and its card: of the parameters after `step`, adapters merged, or of the adapters."""
  source = policy_lib.model_folder(config)
  card = _card(asked, config, step, source)
  if not asked.adapters:
    write_folder(params, model.spec, source, asked.out, asked.shard_mb * 10**6, asked.dtype, card)
    return
  peft.write(params, model, config.lora, config.model.get("path"), asked.out)
  if jax.process_index() == 0:
    (asked.out / "README.md").write_text(card, encoding="utf-8")


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
  """Holds `out` in the block.  Raises ValueError where another export writes it."""
  file = out.with_name(f"{out.name}.lock")
  with lock.hold(file, f"--out={out} is being written"):
    try:
      yield
    finally:
      file.unlink()


def upload(asked: Asked, step: int) -> str:
  """Uploads the folder, where that is asked for; returns its address, else ""."""
  return push.upload(asked.push, asked.out, step) if asked.push and jax.process_index() == 0 else ""


def _card(asked: Asked, config: ConfigDict, step: int, source: Path) -> str:
  versions = checkpointer.host_state(asked.workdir, step)["stands_on"]["versions"]
  words = ["grpojax", "export", f"--workdir={asked.workdir}", f"--out={asked.out}", f"--dtype={asked.dtype}"]
  command = shlex.join(words + ["--adapters"] * asked.adapters)
  with storage.mirror(asked.workdir) as (records, _):
    name = asked.push.rpartition("/")[2] or asked.out.name
    exported = (name, config, step, versions, records, source, asked.adapters, command)
    return model_card.text(model_card.Exported(*exported))


def parse(argv: list[str] | None) -> Asked:
  parser = argparse.ArgumentParser(prog="grpojax export", description=__doc__.split("\n")[0])
  add = parser.add_argument
  add("--workdir", required=True, help="the run whose newest checkpoint is exported")
  add("--out", required=True, help="the folder to write; it must not exist")
  add("--dtype", default="bfloat16", choices=DTYPES)
  add("--adapters", action="store_true", help="write the adapters alone, in PEFT's format")
  add("--shard_mb", default=5000, type=int, help="largest shard, in millions of bytes")
  add("--push", default="", metavar="ORG/NAME", help="upload the folder to this repository of the hub too")
  add("--public", action="store_true", help="a repository that --push makes is public, not private")
  return Asked(**vars(parser.parse_args(argv)))


def main(argv: list[str] | None = None) -> None:
  """Exports.  Raises ValueError for what cannot be."""
  asked = parse(argv)
  asked = asked._replace(
    workdir=storage.resolve(asked.workdir, "--workdir"), out=storage.local(asked.out, "--out")
  )
  config = workdir_lib.read(asked.workdir)
  check(asked)
  mesh = sharding.make_mesh(auto.choose_here(config).mesh)
  model = policy_lib.build_model(config, text.load_tokenizer(policy_lib.model_folder(config)), mesh)
  if asked.adapters and not model.lora:
    raise ValueError(f"--adapters: the run in {asked.workdir} has none (config.lora.rank = 0); leave it out.")
  step, params = (trained_params if asked.adapters else checkpoint_params)(asked.workdir, model, mesh)
  with _alone(asked.out):
    write(asked, config, model, step, params)
  console.say(f"the policy after step {step} is in {asked.out}")
  if url := upload(asked, step):
    console.say(f"and at {url}")


def command() -> None:
  """Reads the command line and exports."""
  main()
