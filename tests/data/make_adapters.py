"""Writes adapters/<family>/: random LoRA adapters as PEFT saves them, and what the model computes with them.

Run by hand, with torch, transformers and peft installed; the test suite needs none of them.  The base
models and the tokens are those of models/<family>.

    python tests/data/make_adapters.py
"""

from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

HERE = Path(__file__).parent
FAMILIES = {  # family -> rank, alpha, modules
  "qwen2": (3, 8, ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
  "gemma2": (2, 5, ["k_proj", "o_proj", "down_proj"]),
}


def make(family: str, rank: int, alpha: int, modules: list[str]) -> None:
  torch.manual_seed(0)
  folder, base = HERE / "adapters" / family, HERE / "models" / family
  model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
  config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=modules, task_type="CAUSAL_LM")
  model = get_peft_model(model, config).eval()
  with torch.no_grad():
    for name, p in model.named_parameters():
      if "lora_" in name:
        p.copy_(torch.randn_like(p) * 0.2)
  model.peft_config["default"].base_model_name_or_path = family
  model.save_pretrained(folder)
  (folder / "README.md").unlink()
  stored = np.load(base / "expected.npz")
  tokens, first = torch.from_numpy(stored["tokens"]).long(), torch.from_numpy(stored["first"])
  seen = (torch.arange(tokens.shape[1])[None] >= first[:, None]).long()
  positions = (seen.cumsum(1) - 1).clamp(min=0)
  with torch.no_grad():
    logits = model(tokens, attention_mask=seen, position_ids=positions).logits
  np.savez_compressed(folder / "expected.npz", logits=logits[:, ::4].numpy())  # every fourth column


if __name__ == "__main__":
  for family, recipe in FAMILIES.items():
    make(family, *recipe)
