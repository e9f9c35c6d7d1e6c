"""Low-rank adapters: matrices that stay frozen, plus alpha / rank times A B.  https://arxiv.org/abs/2106.09685

With adapters the parameters of a policy are two trees, frozen and trained; every program takes their
union, {**base, "adapters": {"layers.q": {"a": [layers, in..., rank], "b": [layers, rank, out...]}}}.

Learner and sampler both compute with the merged matrix W + scale A B, rounded alike, so that their
log-probs agree in any dtype.  It is merged inside the scanned block, which is rematerialised: one
layer's merged matrices exist at a time, and one layer's gradient of them.
"""

import re
from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from grpojax.models import names
from grpojax.models.spec import Spec


class Lora(NamedTuple):
  """The static half of a model's adapters."""

  scale: float  # alpha / rank
  axes: dict  # logical axes, of the tree that is trained
  shapes: dict  # jax.ShapeDtypeStruct, same nested dict


def build(c: ConfigDict, s: Spec, axes: dict, shapes: dict) -> Lora | None:
  """Returns the adapters of `config.lora` for a model of these axes and shapes; None if the rank is 0.

  A starts uniform, B zero; both are float32, whatever the dtype of the frozen matrices.  Logical axes
  are those of the matrix, the rank is replicated.  Raises ValueError if the pattern matches no matrix.
  """
  if not c.rank:
    return None
  matrices = linears(s, shapes)
  chosen = [path for path in matrices if re.fullmatch(rf"(.*\.)?({c.modules})", path)]
  if not chosen:
    raise ValueError(
      f"config.lora.modules = '{c.modules}' matches no matrix of the model; it has {', '.join(matrices)}."
    )
  pairs = {path: _factors(s, path, _at(axes, path), _at(shapes, path).shape, c.rank) for path in chosen}
  pick = lambda i: {"adapters": {path: {k: v[i] for k, v in pair.items()} for path, pair in pairs.items()}}
  return Lora(c.alpha / c.rank, pick(0), pick(1))


def linears(s: Spec, shapes: dict) -> list[str]:
  """Returns the paths of the matrices that multiply a hidden state: all but norms, biases, embedding."""
  paths = (".".join(key.key for key in path) for path, _ in jax.tree.leaves_with_path(shapes))
  return [path for path in paths if path != "embedding" and len(names.row(s, path).theirs) == 2]


def _factors(s: Spec, path: str, axes: tuple, shape: tuple, rank: int) -> dict:
  """Returns {"a": (axes, shape), "b": (axes, shape)} of one matrix."""
  row = names.row(s, path)
  stacked = len(shape) - len(row.ours)
  of = dict(zip(row.ours, zip(axes[stacked:], shape[stacked:], strict=True), strict=True))
  out, inside = ([of[letter] for letter in letters] for letters in row.theirs)
  first = list(zip(axes[:stacked], shape[:stacked], strict=True))
  a, b = [*first, *inside, (None, rank)], [*first, (None, rank), *out]
  return {factor: _axes_and_shape(pairs) for factor, pairs in (("a", a), ("b", b))}


def _axes_and_shape(pairs: list) -> tuple[tuple, jax.ShapeDtypeStruct]:
  axes, shape = zip(*pairs, strict=True)
  return axes, jax.ShapeDtypeStruct(shape, jnp.float32)


def init(lora: Lora, s: Spec, key) -> dict:
  """Returns adapters with B = 0 and A as in PEFT: kaiming_uniform(sqrt(5)), which is U(±1/sqrt(in))."""

  def one(path, pair, key):
    inside = pair["a"].shape[-1 - len(names.row(s, path).theirs[1]) : -1]
    bound = jnp.prod(jnp.asarray(inside)) ** -0.5
    a = jax.random.uniform(key, pair["a"].shape, jnp.float32, -bound, bound)
    return {"a": a, "b": jnp.zeros(pair["b"].shape, jnp.float32)}

  pairs = lora.shapes["adapters"]
  keys = jax.random.split(key, len(pairs))
  return {"adapters": {path: one(path, pairs[path], k) for path, k in zip(sorted(pairs), keys, strict=True)}}


def merge(weight, pair: dict, s: Spec, path: str, scale: float):
  """Returns W + scale A B in float32; stacked axes, if any, come first in W, A and B."""
  row = names.row(s, path)
  ours, (out, inside) = _letters(row.ours), map(_letters, row.theirs)
  equation = f"...{inside}r,...r{out}->...{ours}"
  delta = jnp.einsum(equation, pair["a"], pair["b"], precision="highest")
  return weight.astype(jnp.float32) + scale * delta


def merge_all(params: dict, s: Spec, scale: float) -> dict:
  """Merges a policy's adapters into its base tree, in the dtypes of the base."""
  base = {key: value for key, value in params.items() if key != "adapters"}

  def one(path, weight):
    path = ".".join(key.key for key in path)
    pair = params["adapters"].get(path)
    return merge(weight, pair, s, path, scale).astype(weight.dtype) if pair else weight

  return jax.tree.map_with_path(one, base)


def _letters(axes) -> str:
  return "".join(letter[0] for letter in axes)


def _at(tree: dict, path: str):
  return reduce(dict.__getitem__, path.split("."), tree)
