"""Writes scores/<kind>/: small random Qwen2 classifiers of transformers on torch, and what they compute.

Each folder is what `save_pretrained` leaves (bfloat16), beside expected.npz: tokens [3, S], the first and
last real column of each row, and the scores: [3, labels] of a sequence, [3, S, labels] of its tokens.
Run by hand, with torch and transformers installed; the test suite needs neither torch nor this file.
"""

from pathlib import Path

import numpy as np
import torch
import transformers

V, S, PAD = 272, 40, 0  # more than the 260 of the byte tokenizer that the tests put beside it
FIRST, LAST = [0, 5, 0], [S, S, S - 9]  # whole, padded on the left, padded on the right
KINDS = {"sequence": ("Qwen2ForSequenceClassification", 1), "token": ("Qwen2ForTokenClassification", 2)}


def make(kind: str, folder: Path) -> None:
  torch.manual_seed(0)
  name, labels = KINDS[kind]
  config = transformers.Qwen2Config(
    vocab_size=V, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=24, max_position_embeddings=512, tie_word_embeddings=False, num_labels=labels,
    pad_token_id=PAD, bos_token_id=None, eos_token_id=None,
  )  # fmt: skip
  model = getattr(transformers, name)(config)
  with torch.no_grad():
    for key, p in model.named_parameters():
      p.copy_(torch.randn_like(p) * 0.3 + (1.0 if "norm" in key else 0.0))
  model.to(torch.bfloat16).save_pretrained(folder)
  model = getattr(transformers, name).from_pretrained(
    folder, dtype=torch.float32, attn_implementation="eager"
  ).eval()

  tokens = torch.randint(1, V, (3, S))
  first, last, column = torch.tensor(FIRST), torch.tensor(LAST), torch.arange(S)[None]
  seen = ((column >= first[:, None]) & (column < last[:, None])).long()
  tokens = torch.where(seen > 0, tokens, PAD)
  positions = (seen.cumsum(-1) - 1).clamp(min=0)
  with torch.no_grad():
    scores = model(tokens, attention_mask=seen, position_ids=positions).logits.numpy()
  print(kind, scores.shape, f"up to {abs(scores).max():.1f}")
  np.savez_compressed(folder / "expected.npz", tokens=tokens.numpy(), first=FIRST, last=LAST, scores=scores)


if __name__ == "__main__":
  for kind in KINDS:
    make(kind, Path(__file__).parent / "scores" / kind)
