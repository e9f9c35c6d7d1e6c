"""Writes qwen2.npz: a random Qwen2 of transformers on torch, its weights in our layout, its logits.

Run by hand, with torch and transformers installed; the test suite needs neither torch nor this file.

    python tests/data/make_qwen2.py
"""

from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

D, N, K, H, F, LAYERS, V = 24, 6, 2, 8, 40, 3, 61
torch.manual_seed(0)
config = Qwen2Config(
  hidden_size=D, num_attention_heads=N, num_key_value_heads=K, head_dim=H, intermediate_size=F,
  num_hidden_layers=LAYERS, vocab_size=V, tie_word_embeddings=False, rms_norm_eps=1e-6,
  rope_parameters=dict(rope_type="default", rope_theta=1000.0),
)  # fmt: skip
model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
with torch.no_grad():
  for p in model.parameters():
    p.copy_(torch.randn_like(p) * 0.3 + (1.0 if p.ndim == 1 and p.shape[0] == D else 0.0))
weights = {k: v.detach().numpy() for k, v in model.state_dict().items()}


def stacked(name, reshape):
  return np.stack([reshape(weights[f"model.layers.{i}.{name}"]) for i in range(LAYERS)])


def linear(heads):  # [out, in] -> [in, heads, H]
  return lambda w: w.T.reshape(D, heads, H)


ours = {"embedding": weights["model.embed_tokens.weight"], "final_norm": weights["model.norm.weight"]}
ours["head"] = weights["lm_head.weight"]
for letter, heads in (("q", N), ("k", K), ("v", K)):
  ours[f"layers/{letter}"] = stacked(f"self_attn.{letter}_proj.weight", linear(heads))
  bias = lambda b, heads=heads: b.reshape(heads, H)  # noqa: E731
  ours[f"layers/{letter}_bias"] = stacked(f"self_attn.{letter}_proj.bias", bias)
ours["layers/o"] = stacked("self_attn.o_proj.weight", lambda w: w.T.reshape(N, H, D))
for letter in ("gate", "up", "down"):
  ours[f"layers/{letter}"] = stacked(f"mlp.{letter}_proj.weight", lambda w: w.T)
ours["layers/attention_norm"] = stacked("input_layernorm.weight", lambda w: w)
ours["layers/mlp_norm"] = stacked("post_attention_layernorm.weight", lambda w: w)

tokens = torch.randint(0, V, (4, 17))
first = torch.tensor([0, 3, 9, 1])  # left padding
seen = (torch.arange(17)[None] >= first[:, None]).long()
positions = (seen.cumsum(-1) - 1).clamp(min=0)
with torch.no_grad():
  logits = model(tokens, attention_mask=seen, position_ids=positions).logits.numpy()
np.savez_compressed(
  Path(__file__).with_name("qwen2.npz"), tokens=tokens.numpy(), first=first.numpy(), logits=logits,
  config=repr(dict(
    hidden_size=D, num_hidden_layers=LAYERS, num_attention_heads=N, num_key_value_heads=K, head_dim=H,
    intermediate_size=F, rms_norm_eps=1e-6, rope_theta=1000.0, attention_bias=True,
    tie_word_embeddings=False, dtype="float32",
  )),
  **{f"params/{k}": v for k, v in ours.items()},
)  # fmt: skip
