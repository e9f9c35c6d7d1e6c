"""Our parameters and Hugging Face's tensors: one row per parameter, read in both directions.

A row is (name on disk, rearrangement "theirs -> ours"), e.g. "(n h) d -> d n h": a linear layer's
[out, in] becomes ours with heads apart.  `{layer}` and `{expert}` in a name stand for the leading
axes of our stacked parameter.
"""

import math
import re
from typing import NamedTuple

import numpy as np

from grpojax.models.spec import Spec

_LAYER = "model.layers.{layer}."
_ATTENTION = {
  "layers.attention_norm": ("input_layernorm.weight", "d -> d"),
  "layers.q": ("self_attn.q_proj.weight", "(n h) d -> d n h"),
  "layers.k": ("self_attn.k_proj.weight", "(n h) d -> d n h"),
  "layers.v": ("self_attn.v_proj.weight", "(n h) d -> d n h"),
  "layers.q_bias": ("self_attn.q_proj.bias", "(n h) -> n h"),
  "layers.k_bias": ("self_attn.k_proj.bias", "(n h) -> n h"),
  "layers.v_bias": ("self_attn.v_proj.bias", "(n h) -> n h"),
  "layers.q_norm": ("self_attn.q_norm.weight", "h -> h"),
  "layers.k_norm": ("self_attn.k_norm.weight", "h -> h"),
  "layers.o": ("self_attn.o_proj.weight", "d (n h) -> n h d"),
  "layers.o_bias": ("self_attn.o_proj.bias", "d -> d"),
}
_LLAMA = {
  "embedding": ("model.embed_tokens.weight", "v d -> v d"),
  "final_norm": ("model.norm.weight", "d -> d"),
  "head": ("lm_head.weight", "v d -> v d"),
  "score": ("score.weight", "l d -> l d"),
  "score_bias": ("score.bias", "l -> l"),
  "layers.mlp_norm": ("post_attention_layernorm.weight", "d -> d"),
  "layers.gate": ("mlp.gate_proj.weight", "f d -> d f"),
  "layers.up": ("mlp.up_proj.weight", "f d -> d f"),
  "layers.down": ("mlp.down_proj.weight", "d f -> f d"),
} | _ATTENTION
_GEMMA2 = _LLAMA | {  # the name that is everybody else's norm before the MLP means another norm here
  "layers.post_attention_norm": ("post_attention_layernorm.weight", "d -> d"),
  "layers.mlp_norm": ("pre_feedforward_layernorm.weight", "d -> d"),
  "layers.post_mlp_norm": ("post_feedforward_layernorm.weight", "d -> d"),
}
_MOE = _LLAMA | {
  "layers.moe.router": ("mlp.gate.weight", "e d -> d e"),
  "layers.moe.gate": ("mlp.experts.{expert}.gate_proj.weight", "f d -> d f"),
  "layers.moe.up": ("mlp.experts.{expert}.up_proj.weight", "f d -> d f"),
  "layers.moe.down": ("mlp.experts.{expert}.down_proj.weight", "d f -> f d"),
  "layers.moe.shared_router": ("mlp.shared_expert_gate.weight", "one d -> d one"),
  "layers.moe.shared_gate": ("mlp.shared_expert.gate_proj.weight", "f d -> d f"),
  "layers.moe.shared_up": ("mlp.shared_expert.up_proj.weight", "f d -> d f"),
  "layers.moe.shared_down": ("mlp.shared_expert.down_proj.weight", "d f -> f d"),
}
FAMILIES = {
  "qwen2": _LLAMA, "qwen3": _LLAMA, "llama": _LLAMA, "mistral": _LLAMA, "gemma": _LLAMA,
  "gemma2": _GEMMA2, "gemma3_text": _GEMMA2, "qwen2_moe": _MOE, "qwen3_moe": _MOE,
}  # fmt: skip


class Row(NamedTuple):
  """One parameter of ours and its tensors on disk."""

  name: str  # on disk, with {layer} and {expert}
  theirs: tuple[tuple[str, ...], ...]  # letters of each axis on disk
  ours: tuple[str, ...]  # letters of our axes behind the stacked ones

  @property
  def stacked(self) -> int:
    """Returns how many leading axes of our array are part of the name on disk."""
    return self.name.count("{")

  def names(self, at: tuple[int, ...]) -> str:
    """Returns the name of the tensor at one index of the stacked axes."""
    return self.name.format(**dict(zip(re.findall(r"{(\w+)}", self.name), at, strict=True)))

  def shape_on_disk(self, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the tensor's shape on disk; `shape` is our array's without stacked axes."""
    size = dict(zip(self.ours, shape, strict=True))
    return tuple(math.prod(size[letter] for letter in axis) for axis in self.theirs)

  def to_disk(self, ours: np.ndarray) -> np.ndarray:
    """Returns one tensor as it lies on disk; C-contiguous, since safetensors writes other arrays wrongly."""
    order = [self.ours.index(letter) for axis in self.theirs for letter in axis]
    return np.ascontiguousarray(ours.transpose(order).reshape(self.shape_on_disk(ours.shape)))

  def read(self, tensor, shape: tuple[int, ...], index: tuple[slice, ...]) -> np.ndarray:
    """Reads `index` of our array of `shape` from a tensor on disk that is read in slices."""
    size = dict(zip(self.ours, shape, strict=True))
    part = {a: slice(*i.indices(size[a])[:2]) for a, i in zip(self.ours, index, strict=True)}
    cut, split, inside = [], [], []
    for axis in self.theirs:
      first, rest = axis[0], math.prod(size[letter] for letter in axis[1:])
      cut.append(slice(part[first].start * rest, part[first].stop * rest))
      split += [part[first].stop - part[first].start, *(size[letter] for letter in axis[1:])]
      inside += [slice(None), *(part[letter] for letter in axis[1:])]
    letters = [letter for axis in self.theirs for letter in axis]
    piece = tensor[tuple(cut)].reshape(split)[tuple(inside)]
    return piece.transpose([letters.index(letter) for letter in self.ours])


def row(s: Spec, path: str) -> Row:
  """Returns the row of a parameter, named by its path in our tree ("layers.q")."""
  name, pattern = FAMILIES[s.family][path]
  theirs, ours = pattern.split(" -> ")
  axes = tuple(tuple(a.strip("()").split()) for a in re.findall(r"\([^)]*\)|\w+", theirs))
  prefix = _LAYER if path.startswith("layers.") else ""
  return Row(prefix + name, axes, tuple(ours.split()))
