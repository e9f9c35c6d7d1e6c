"""Writes models/<family>/: small random models of transformers on torch, and what they compute.

Each folder is what `save_pretrained` leaves (bfloat16, several shards), beside expected.npz: tokens
[B, S], the first and last real column of each row, the logits in float32, and greedy completions.
Run by hand, with torch and transformers installed; the test suite needs neither torch nor this file.

    python tests/data/make_models.py [family ...]
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM

V, PROMPT, NEW = 61, 16, 64
FIRST = [0, 5, 11]  # left padding of the three prompts
RIGHT = 20  # columns of right padding on the last row
SIZES = dict(
  vocab_size=V, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=3,
  head_dim=8, intermediate_size=28, max_position_embeddings=128, tie_word_embeddings=False,
  bos_token_id=None, eos_token_id=None, pad_token_id=None,
)  # fmt: skip
ROPE = dict(rope_type="default", rope_theta=1000.0)
LLAMA3 = dict(
  rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
  original_max_position_embeddings=16,
)  # fmt: skip
GEMMA = dict(
  num_hidden_layers=3, sliding_window=7, query_pre_attn_scalar=12, tie_word_embeddings=True,
  layer_types=["sliding_attention", "full_attention", "sliding_attention"],
)  # fmt: skip
MOE = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12, decoder_sparse_step=1)
FAMILIES = {
  "qwen2": ("Qwen2Config", dict(
    use_sliding_window=True, sliding_window=9, max_window_layers=1, num_attention_heads=5,
    num_key_value_heads=1, rope_parameters=ROPE,
  )),
  "qwen3": ("Qwen3Config", dict(tie_word_embeddings=True, rope_parameters=ROPE)),
  "llama": ("LlamaConfig", dict(attention_bias=True, rope_parameters=LLAMA3, rms_norm_eps=1e-5)),
  "mistral": ("MistralConfig", dict(sliding_window=9, rope_parameters=ROPE, head_dim=6)),
  "gemma": ("GemmaConfig", dict(tie_word_embeddings=True, num_key_value_heads=1, rope_parameters=ROPE)),
  "gemma2": ("Gemma2Config", GEMMA | dict(
    attn_logit_softcapping=2.0, final_logit_softcapping=3.0, rope_parameters=ROPE,
  )),
  "gemma3_text": ("Gemma3TextConfig", GEMMA | dict(rope_parameters=dict(
    sliding_attention=ROPE, full_attention=dict(rope_type="linear", rope_theta=9000.0, factor=4.0),
  ))),
  "qwen2_moe": ("Qwen2MoeConfig", MOE | dict(
    shared_expert_intermediate_size=20, norm_topk_prob=False, rope_parameters=ROPE,
  )),
  "qwen3_moe": ("Qwen3MoeConfig", MOE | dict(norm_topk_prob=True, rope_parameters=ROPE)),
}  # fmt: skip


def make(family: str, folder: Path) -> None:
  torch.manual_seed(0)
  name, changes = FAMILIES[family]
  config = getattr(transformers, name)(**SIZES | changes)
  model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
  centre = 0.0 if "gemma" in family else 1.0
  with torch.no_grad():
    for key, p in model.named_parameters():
      p.copy_(torch.randn_like(p) * 0.3 + (centre if "norm" in key else 0.0))
  model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="14KB")
  model = AutoModelForCausalLM.from_pretrained(
    folder, dtype=torch.float32, attn_implementation="eager"
  ).eval()

  prompts, first = torch.randint(0, V, (3, PROMPT)), torch.tensor(FIRST)
  left = (torch.arange(PROMPT)[None] >= first[:, None]).long()
  tokens = model.generate(
    prompts, attention_mask=left, do_sample=False, max_new_tokens=NEW, pad_token_id=0
  )
  assert tokens.shape == (3, PROMPT + NEW)
  last = torch.tensor([PROMPT + NEW, PROMPT + NEW, PROMPT + NEW - RIGHT])
  column = torch.arange(PROMPT + NEW)[None]
  seen = ((column >= first[:, None]) & (column < last[:, None])).long()
  positions = (seen.cumsum(-1) - 1).clamp(min=0)
  extra = {"output_router_logits": True} if "moe" in family else {}
  with torch.no_grad():
    out = model(tokens, attention_mask=seen, position_ids=positions, use_cache=False, **extra)
  if extra:
    extra = {"balance": transformers.models.qwen3_moe.modeling_qwen3_moe.load_balancing_loss_func(
      out.router_logits, config.num_experts, config.num_experts_per_tok, seen
    ).numpy()}  # fmt: skip
  top = out.logits[0, PROMPT - 1 : -1].topk(2, -1).values
  lead = (top[:, 0] - top[:, 1]).min().item()
  print(f"{family}: logits up to {out.logits.abs().max():.1f}, the likeliest token leads by {lead:.4f}")
  np.savez_compressed(
    folder / "expected.npz", tokens=tokens.numpy(), first=first.numpy(), last=last.numpy(),
    prompt=PROMPT, logits=out.logits.numpy(), **extra,
  )  # fmt: skip


if __name__ == "__main__":
  for family in sys.argv[1:] or FAMILIES:
    make(family, Path(__file__).parent / "models" / family)
