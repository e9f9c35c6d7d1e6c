"""Models by name, so that their shapes can be checked where no folder is: their config.json."""

import json
from pathlib import Path

_QWEN2 = dict(
  model_type="qwen2", architectures=["Qwen2ForCausalLM"], hidden_act="silu", rms_norm_eps=1e-6,
  rope_theta=1e6, max_position_embeddings=131_072, vocab_size=152_064, tie_word_embeddings=False,
)  # fmt: skip
# https://arxiv.org/abs/2412.15115 table 1, https://arxiv.org/abs/2505.09388 table 2 and
# https://arxiv.org/abs/2503.19786 section 2; what these do not say is as in the released config.json
MODELS = {
  "Qwen2.5-0.5B": _QWEN2 | dict(
    hidden_size=896, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
    intermediate_size=4864, vocab_size=151_936, tie_word_embeddings=True,
  ),
  "Qwen2.5-1.5B": _QWEN2 | dict(
    hidden_size=1536, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2,
    intermediate_size=8960, vocab_size=151_936, tie_word_embeddings=True,
  ),
  "Qwen2.5-3B": _QWEN2 | dict(
    hidden_size=2048, num_hidden_layers=36, num_attention_heads=16, num_key_value_heads=2,
    intermediate_size=11_008, vocab_size=151_936, tie_word_embeddings=True,
  ),
  "Qwen2.5-7B": _QWEN2 | dict(
    hidden_size=3584, num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4,
    intermediate_size=18_944,
  ),
  "Qwen2.5-14B": _QWEN2 | dict(
    hidden_size=5120, num_hidden_layers=48, num_attention_heads=40, num_key_value_heads=8,
    intermediate_size=13_824,
  ),
  "Qwen2.5-32B": _QWEN2 | dict(
    hidden_size=5120, num_hidden_layers=64, num_attention_heads=40, num_key_value_heads=8,
    intermediate_size=27_648,
  ),
  "Qwen2.5-72B": _QWEN2 | dict(
    hidden_size=8192, num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8,
    intermediate_size=29_568,
  ),
  "Qwen3-30B-A3B": dict(
    model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], hidden_act="silu", rms_norm_eps=1e-6,
    rope_theta=1e6, max_position_embeddings=40_960, vocab_size=151_936, tie_word_embeddings=False,
    hidden_size=2048, num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4, head_dim=128,
    intermediate_size=6144, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768,
    norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], attention_bias=False,
  ),
  "gemma-3-1b": dict(
    model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], hidden_activation="gelu_pytorch_tanh",
    rms_norm_eps=1e-6, rope_theta=1e6, rope_local_base_freq=1e4, max_position_embeddings=32_768,
    vocab_size=262_144, hidden_size=1152, num_hidden_layers=26, num_attention_heads=4, num_key_value_heads=1,
    head_dim=256, intermediate_size=6912, query_pre_attn_scalar=256, sliding_window=512,
    sliding_window_pattern=6, attention_bias=False,
  ),
}  # fmt: skip


def folder(path: str, scratch: Path) -> Path:
  """Returns the folder `path`; for a model of MODELS, one in `scratch` with its config.json.

  What was tuned to instructions has the shapes of what it was tuned from.
  """
  name = Path(path).name.removesuffix("-Instruct").removesuffix("-it")
  if Path(path).expanduser().is_dir() or name not in MODELS:
    return Path(path).expanduser()
  made = scratch / name
  made.mkdir(exist_ok=True)
  (made / "config.json").write_text(json.dumps(MODELS[name]))
  return made
