"""Parameters -> a folder that transformers and vLLM open: config.json, tokenizer, safetensors shards.

The folder the model came from gives everything but the weights.  Bitwise what was read if the dtype
is the same.
"""

import itertools
import json
import shutil
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from safetensors.numpy import save_file

from grpojax.models.names import Row, row
from grpojax.models.spec import Spec

WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pth", ".pt", ".gguf")


class Tensor(NamedTuple):
  """One tensor of the folder to be, and where it lies in ours."""

  name: str
  shape: tuple[int, ...]  # on disk
  leaf: jax.Array
  row: Row
  at: tuple[int, ...]  # index on the stacked axes


def write_folder(
  params: dict, spec: Spec, source: str | Path, out: str | Path, max_shard_bytes: int, dtype: str
) -> None:
  """Writes `params` in `dtype` to the new folder `out`, beside copies of what `source` holds.

  All processes call it: each tensor is gathered by all and written by process 0, which holds one shard
  of at most `max_shard_bytes` (or one tensor, if that is more) at a time.  The folder appears under its
  name when it is whole.  ValueError if `out` exists already.
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
    _copy(source, partial, dtype)
  for name, members in shards.items():
    arrays = {tensor.name: _fetch(tensor, dtype) for tensor in members}
    if writes:
      save_file(arrays, partial / name, metadata={"format": "pt"})  # transformers asks for this word
  if writes:
    if len(shards) > 1:
      (partial / "model.safetensors.index.json").write_text(_index(shards, dtype))
    partial.rename(out)


def tensors(params: dict, spec: Spec) -> list[Tensor]:
  """Every tensor of the folder, layer by layer."""
  found = []
  for path, leaf in jax.tree.leaves_with_path(params):
    r = row(spec, ".".join(key.key for key in path))
    shape = r.shape_on_disk(leaf.shape[r.stacked :])
    for at in itertools.product(*map(range, leaf.shape[: r.stacked])):
      found.append(Tensor(r.names(at), shape, leaf, r, at))
  return sorted(found, key=lambda t: t.at[:1])


def plan(listed: list[Tensor], max_shard_bytes: int, dtype: str) -> dict[str, list[Tensor]]:
  """File name -> its tensors, each file filled up to `max_shard_bytes`."""
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
  """The tensor on this host, whole, as it lies on disk."""
  ours = multihost_utils.process_allgather(tensor.leaf[tensor.at].astype(dtype), tiled=True)
  return tensor.row.to_disk(np.asarray(ours))


def _index(shards: dict[str, list[Tensor]], dtype: str) -> str:
  members = [(name, tensor) for name, listed in shards.items() for tensor in listed]
  total = sum(_bytes(tensor, dtype) for _, tensor in members)
  weight_map = {tensor.name: name for name, tensor in members}
  return json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2, sort_keys=True)


def _copy(source: Path, out: Path, dtype: str) -> None:
  """Everything but the weights and the model card, which describes another model now."""
  for file in sorted(source.iterdir()):
    if file.is_file() and not file.name.endswith(WEIGHTS) and file.name != "README.md":
      shutil.copyfile(file, out / file.name)
  config = json.loads((source / "config.json").read_text())
  key = "dtype" if "dtype" in config else "torch_dtype"
  if config.get(key) != dtype:  # readers take the weights' precision from here
    (out / "config.json").write_text(json.dumps(config | {key: dtype}, indent=2))
