"""Architecture as data: the differences of Qwen2, Qwen3, Llama, Mistral, Gemma and the mixtures.

One decoder implements every `Spec`; no architecture has code of its own.  A spec comes from the config's
`model` keys (a small Qwen2) or from the config.json of a local folder.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict
from transformers import AutoConfig

from grpojax.models.parts import ACTIVATIONS
from grpojax.runtime import storage


@dataclass(frozen=True)
class Rope:
  """Rotary frequencies.  `linear` and `llama3` stretch them beyond the length of pre-training."""

  theta: float
  kind: str = "default"  # "default", "linear" or "llama3"
  factor: float = 1.0
  low_freq_factor: float = 1.0  # llama3: wavelengths above original / low are divided by `factor`
  high_freq_factor: float = 4.0  # llama3: those below original / high stay; between, interpolated
  original_length: int = 0  # llama3: positions seen in pre-training

  def frequencies(self, head_dim: int) -> np.ndarray:
    """Returns [head_dim / 2] float32, radians per position.  llama3: https://arxiv.org/abs/2407.21783."""
    plain = self.theta ** -(np.arange(0, head_dim, 2) / head_dim)
    if self.kind == "default":
      return plain.astype(np.float32)
    slow = plain / self.factor
    if self.kind == "linear":
      return slow.astype(np.float32)
    turns = self.original_length * plain / (2 * np.pi)  # in the length of pre-training
    low, high = self.low_freq_factor, self.high_freq_factor
    share = np.clip((turns - low) / (high - low), 0, 1)
    return (share * plain + (1 - share) * slow).astype(np.float32)


@dataclass(frozen=True)
class Moe:
  """A mixture of experts in place of every layer's MLP."""

  num_experts: int
  num_experts_per_tok: int
  intermediate_size: int  # of one expert
  norm_topk_prob: bool  # gates are a softmax over the chosen experts only
  shared_size: int = 0  # Qwen2-MoE: an MLP that all tokens pass, behind its own sigmoid gate


@dataclass(frozen=True)
class Spec:
  """Everything static about a decoder.  Names are those of Hugging Face's config.json."""

  family: str  # whose tensor names the parameters have on disk: a key of names.FAMILIES
  vocab_size: int
  hidden_size: int
  num_hidden_layers: int
  num_attention_heads: int
  num_key_value_heads: int
  head_dim: int
  intermediate_size: int
  rms_norm_eps: float
  tie_word_embeddings: bool
  ropes: tuple[Rope, ...]
  rope_of: tuple[int, ...]  # per layer: which of `ropes`
  windows: tuple[int, ...]  # per layer: columns that a query sees, itself included; 0: all before it
  qkv_bias: bool = False
  o_bias: bool = False
  qk_norm: bool = False  # RMSNorm of each head's query and key, before rotation
  post_norms: bool = False  # Gemma 2 and 3: a norm behind attention and MLP too
  norm_offset: float = 0.0  # Gemma: norms multiply by 1 + weight
  embedding_scale: float = 1.0
  query_scale: float = 0.0  # of attention scores; 0: head_dim ** -0.5
  attention_softcap: float = 0.0  # c: scores become c tanh(scores / c); 0: off
  logit_softcap: float = 0.0
  activation: str = "silu"
  moe: Moe | None = None
  labels: int = 0  # of a classifier, in place of the head over the vocabulary; 0: a language model
  score_bias: bool = False
  dtype: str = "float32"  # of activations
  param_dtype: str = "float32"  # of parameters
  head_dtype: str = ""  # of the head's products; "": dtype

  @property
  def expert_size(self) -> int:
    """Returns the parameters of one expert of one layer: gate, up and down; 0 without a mixture."""
    return 3 * self.hidden_size * self.moe.intermediate_size if self.moe else 0

  @property
  def unmet(self) -> int:
    """Returns the parameters of all layers' experts that a token does not meet; 0 without a mixture."""
    others = self.moe.num_experts - self.moe.num_experts_per_tok if self.moe else 0
    return self.num_hidden_layers * others * self.expert_size


def from_config(c: ConfigDict, vocab_size: int) -> Spec:
  """Returns the Qwen2 of `config.model`; without its biases, that is a Llama.

  A config with experts gives a Qwen3-MoE.
  """
  layers, bias = c.num_hidden_layers, c.attention_bias
  own = dict(family="qwen2" if bias else "llama")
  if c.num_experts:
    own = dict(family="qwen3_moe", o_bias=bias, qk_norm=True, moe=_moe(c))
  return Spec(
    vocab_size=vocab_size,
    ropes=(Rope(c.rope_theta),),
    rope_of=(0,) * layers,
    windows=(0,) * layers,
    qkv_bias=bias,
    dtype=c.dtype,
    head_dtype=c.head_dtype,
    **{key: c[key] for key in _SIZES},
    **own,
  )


_SIZES = (
  "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
  "intermediate_size", "rms_norm_eps", "tie_word_embeddings",
)  # fmt: skip


def to_config(s: Spec) -> dict:
  """Returns the config.json of a spec that `from_config` made."""
  classes = {"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}
  own = {}
  if s.moe:
    own = {key: getattr(s.moe, key) for key in ("num_experts", "num_experts_per_tok", "norm_topk_prob")}
    own |= dict(moe_intermediate_size=s.moe.intermediate_size, attention_bias=s.qkv_bias)
  return {key: getattr(s, key) for key in _SIZES} | own | dict(
    architectures=[classes[s.family]],
    model_type=s.family,
    vocab_size=s.vocab_size,
    hidden_act=s.activation,
    rope_theta=s.ropes[0].theta,
  )


def from_folder(
  folder: str | Path, dtype: str = "float32", param_dtype: str = "float32", head_dtype: str = ""
) -> Spec:
  """Returns the architecture that a local folder's config.json describes.

  Raises ValueError if there is no config.json, or if it needs something this decoder does not have.
  """
  path = Path(folder) / "config.json"
  if not path.is_file():
    raise ValueError(f"{path} does not exist; name a local folder in Hugging Face's layout.")
  family = storage.read_json(path).get("model_type")
  if family not in _FAMILIES:
    raise ValueError(f"{path}: model_type = {family!r}, but this decoder has only {', '.join(_FAMILIES)}.")
  h = _config(folder)
  _refuse_what_is_missing(path, h)
  ropes, rope_of = _ropes(path, h)
  own = _FAMILIES[family](h)
  if own["activation"] not in ACTIVATIONS:
    raise ValueError(
      f"{path}: the activation is {own['activation']!r}, but this decoder has only {', '.join(ACTIVATIONS)}."
    )
  known = {key: getattr(h, key) for key in _SIZES if key != "head_dim"}
  return Spec(
    family=family,
    vocab_size=h.vocab_size,
    head_dim=getattr(h, "head_dim", None) or h.hidden_size // h.num_attention_heads,
    ropes=ropes,
    rope_of=rope_of,
    windows=_windows(h),
    dtype=dtype,
    param_dtype=param_dtype,
    head_dtype=head_dtype,
    **known,
    **own,
  )


def _config(folder: str | Path):
  """Reads config.json in one spelling, old or new; code in the folder is not run."""
  return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def scores_from_folder(folder: str | Path, task: str, dtype: str = "float32") -> Spec:
  """Returns a classifier's architecture: `task` is "SequenceClassification" or "TokenClassification"."""
  spec, path = from_folder(folder, dtype, dtype), Path(folder) / "config.json"
  h = _config(folder)
  names = h.architectures or []
  if not any(name.endswith(f"For{task}") for name in names):
    raise ValueError(f"{path}: architectures = {names}, but what scores here is a model for {task}.")
  bias = task == "TokenClassification" and getattr(h, "token_classification_bias", True)
  return replace(spec, labels=h.num_labels, score_bias=bias)


def _qwen2(h):
  return dict(qkv_bias=True, activation=h.hidden_act)


def _llama(h):
  bias = h.attention_bias
  return dict(qkv_bias=bias, o_bias=bias, activation=h.hidden_act)


def _mistral(h):
  return dict(activation=h.hidden_act)


def _qwen3(h):
  return _llama(h) | dict(qk_norm=True)


def _gemma(h):
  bias = h.attention_bias
  scale = h.hidden_size**0.5
  return dict(
    qkv_bias=bias, o_bias=bias, norm_offset=1.0, embedding_scale=scale, activation=h.hidden_act
  )


def _gemma2(h):
  bias = h.attention_bias
  return dict(
    qkv_bias=bias,
    o_bias=bias,
    norm_offset=1.0,
    embedding_scale=h.hidden_size**0.5,
    activation=h.hidden_activation,
    post_norms=True,
    query_scale=h.query_pre_attn_scalar**-0.5,
    attention_softcap=h.attn_logit_softcapping or 0.0,
    logit_softcap=h.final_logit_softcapping or 0.0,
  )


def _gemma3(h):
  return _gemma2(h) | dict(qk_norm=True)


def _moe(h, shared_size=0):
  return Moe(h.num_experts, h.num_experts_per_tok, h.moe_intermediate_size, h.norm_topk_prob, shared_size)


def _qwen2_moe(h):
  moe = _moe(h, h.shared_expert_intermediate_size)
  return dict(qkv_bias=h.qkv_bias, activation=h.hidden_act, moe=moe)


def _qwen3_moe(h):
  return _qwen3(h) | dict(moe=_moe(h))


_FAMILIES = {
  "qwen2": _qwen2,
  "qwen3": _qwen3,
  "llama": _llama,
  "mistral": _mistral,
  "gemma": _gemma,
  "gemma2": _gemma2,
  "gemma3_text": _gemma3,
  "qwen2_moe": _qwen2_moe,
  "qwen3_moe": _qwen3_moe,
}


def _windows(h) -> tuple[int, ...]:
  layers, window = h.num_hidden_layers, getattr(h, "sliding_window", None)
  if not window:
    return (0,) * layers
  kinds = getattr(h, "layer_types", None) or ["sliding_attention"] * layers  # Mistral: all of them
  return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def _ropes(path: Path, h) -> tuple[tuple[Rope, ...], tuple[int, ...]]:
  """Returns the rotary tables, and the table of each layer (Gemma 3 has one per kind of attention)."""
  parameters = h.rope_parameters
  if "rope_type" in parameters:
    return (_rope(path, parameters),), (0,) * h.num_hidden_layers
  kinds = sorted(set(h.layer_types))
  tables = tuple(_rope(path, parameters[kind]) for kind in kinds)
  return tables, tuple(kinds.index(kind) for kind in h.layer_types)


def _rope(path: Path, parameters: dict) -> Rope:
  kind, theta = parameters["rope_type"], float(parameters["rope_theta"])
  if kind == "default":
    return Rope(theta)
  if kind == "linear":
    return Rope(theta, kind, parameters["factor"])
  if kind == "llama3":
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    original = parameters["original_max_position_embeddings"]
    return Rope(theta, kind, parameters["factor"], low, high, original)
  raise ValueError(f"{path}: rope_type = {kind!r}, but this decoder has only default, linear, llama3.")


def _refuse_what_is_missing(path: Path, h) -> None:
  ropes = h.rope_parameters
  for p in [ropes] if "rope_type" in ropes else ropes.values():
    if (p.get("partial_rotary_factor") or 1.0) != 1.0:
      raise ValueError(f"{path}: partial_rotary_factor is not supported; whole heads are rotated.")
  if getattr(h, "decoder_sparse_step", 1) != 1 or getattr(h, "mlp_only_layers", None):
    raise ValueError(
      f"{path}: decoder_sparse_step and mlp_only_layers mix dense layers with mixtures, which "
      "stacked layers cannot; every layer must be a mixture."
    )
  for key in ("mlp_bias", "use_bidirectional_attention", "quantization_config"):
    if getattr(h, key, None):
      raise ValueError(f"{path}: {key} is set, which this decoder does not support.")
