"""A local folder in Hugging Face's layout -> parameters, sharded as they are read.

Each process reads the slices that its own devices hold, and one device's slice of one parameter at a
time, so host memory never sees the whole model.
"""

import functools
import itertools
from collections import defaultdict
from pathlib import Path

import jax
import numpy as np
from safetensors import safe_open

from grpojax.models.decoder import Model
from grpojax.models.names import Row, row
from grpojax.models.spec import Spec
from grpojax.runtime import sharding, storage


class Tensors:
  """The tensors of a folder by name, whatever the shard they lie in; nothing is read yet."""

  def __init__(self, folder: str | Path):
    folder = Path(folder)
    index = folder / "model.safetensors.index.json"
    names = ["model.safetensors"]  # and not consolidated.safetensors, which has the same under other names
    if index.is_file():
      names = sorted(set(storage.read_json(index)["weight_map"].values()))
    if foreign := [name for name in names if Path(name).name != name]:
      raise ValueError(f"{index} names {foreign[0]}, which is not a file of the folder; do not trust it.")
    lost = [name for name in names if not (folder / name).is_file()]
    if lost:
      raise ValueError(f"{folder} lacks {', '.join(lost)}; bring the whole checkpoint, as safetensors.")
    self.folder = folder
    self._file_of = {}
    for file in (folder / name for name in names):
      with safe_open(file, framework="np") as opened:
        self._file_of |= dict.fromkeys(opened.keys(), file)

  def names(self) -> set[str]:
    return set(self._file_of)

  def reader(self):
    """Returns a function from a name to a handle that reads slices.  Files stay mapped in memory with it."""
    opened = functools.cache(lambda file: safe_open(file, framework="np"))
    return lambda name: opened(self._file_of[name]).get_slice(name)


def load(folder: str | Path, model: Model, mesh) -> dict:
  """Reads `folder`'s parameters onto `mesh`; `model` was made by `from_spec(from_folder(folder))`.

  Values are cast to `spec.param_dtype`.  Raises ValueError naming every tensor that is missing, unexpected
  or mis-shaped, before any is read.
  """
  tensors = Tensors(folder)
  check(tensors, model)
  where = sharding.param_shardings(mesh, model.axes, model.shapes, model.rules)

  def one(path, shape, layout):
    r = row(model.spec, ".".join(key.key for key in path))
    return _make_array(shape, layout, lambda index: _read(tensors, r, shape, index))

  return jax.tree.map_with_path(one, model.shapes, where)


def _make_array(shape: jax.ShapeDtypeStruct, layout, read) -> jax.Array:
  """Makes an array as jax.make_array_from_callback does, but reads a slice once for all its replicas."""
  holders = defaultdict(list)
  for device, index in layout.addressable_devices_indices_map(shape.shape).items():
    holders[tuple((i.start, i.stop) for i in index)].append(device)
  arrays = []
  for index, devices in holders.items():
    piece = read(tuple(slice(*bounds) for bounds in index))
    arrays += [jax.device_put(piece, device) for device in devices]
    jax.block_until_ready(arrays)
  return jax.make_array_from_single_device_arrays(shape.shape, layout, arrays)


def expected(model: Model) -> dict[str, tuple[int, ...]]:
  """Returns name on disk -> shape on disk, of every tensor of the model."""
  found = {}
  for path, shape in jax.tree.leaves_with_path(model.shapes):
    r = row(model.spec, ".".join(key.key for key in path))
    stacked, rest = shape.shape[: r.stacked], shape.shape[r.stacked :]
    for at in itertools.product(*map(range, stacked)):
      found[r.names(at)] = r.shape_on_disk(rest)
  return found


def check(tensors: Tensors, model: Model) -> None:
  """Raises ValueError in one sentence if the folder's tensors are not those of the model."""
  wanted, there = expected(model), tensors.names()
  extra = {n for n in there - wanted.keys() if not n.endswith("rotary_emb.inv_freq")}  # recomputed
  if model.spec.tie_word_embeddings and "lm_head.weight" in extra:
    extra -= _redundant_head(tensors, model.spec)
  tensor = tensors.reader()
  shapes = {name: tuple(tensor(name).get_shape()) for name in wanted.keys() & there}
  wrong = [f"{n} is {shapes[n]} for {wanted[n]}" for n in sorted(shapes) if shapes[n] != wanted[n]]
  problems = {
    "missing": sorted(wanted.keys() - there), "unexpected": sorted(extra), "mis-shaped": wrong,
  }  # fmt: skip
  differences = [f"{len(names)} {what} ({some(names)})" for what, names in problems.items() if names]
  if differences:
    raise ValueError(
      f"{tensors.folder} does not hold the tensors that its config.json describes: {'; '.join(differences)}."
    )


def _redundant_head(tensors: Tensors, s: Spec) -> set[str]:
  """Returns {"lm_head.weight"} if it repeats the embedding, as some folders of tied models have it."""
  tensor = tensors.reader()
  head, embedding = tensor("lm_head.weight"), tensor("model.embed_tokens.weight")
  if head.get_shape() != embedding.get_shape():
    return set()
  V, step = s.vocab_size, 4096
  parts = [slice(i, min(i + step, V)) for i in range(0, V, step)]
  same = all(np.array_equal(head[part], embedding[part]) for part in parts)
  return {"lm_head.weight"} if same else set()


def some(names: list[str], most: int = 8) -> str:
  return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _read(tensors: Tensors, r: Row, shape: jax.ShapeDtypeStruct, index) -> np.ndarray:
  """Reads `index` of a parameter, stacked axes first, from the tensors that it is stacked of."""
  stacked = [range(*i.indices(n)) for i, n in zip(index[: r.stacked], shape.shape, strict=False)]
  rest = shape.shape[r.stacked :]
  tensor, out = tensors.reader(), None
  for at in itertools.product(*(range(len(axis)) for axis in stacked)):
    name = r.names(tuple(axis[i] for axis, i in zip(stacked, at, strict=True)))
    piece = r.read(tensor(name), rest, index[r.stacked :])
    if out is None:
      out = np.empty((*map(len, stacked), *piece.shape), shape.dtype)
    out[at] = piece
  return out
