"""The work that all systems do.  Standard library only: every system's environment reads this file.

Their tokenizer has no merges, so that a prompt of 32 letters is one of 32 tokens.  With PEERS_MODEL=real in
its environment a process has the shapes of SmolLM2-135M (`python -m benchmarks.real`), else those of a toy;
PEERS_NEW says how long its responses are.
"""

import os
import random
import string

VOCAB = 512
MODEL = dict(  # Qwen2, as config.json says it; float32
  model_type="qwen2", architectures=["Qwen2ForCausalLM"], vocab_size=VOCAB, hidden_size=128,
  num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, intermediate_size=384,
  max_position_embeddings=512, rms_norm_eps=1e-6, rope_theta=10000.0, tie_word_embeddings=True,
  hidden_act="silu", use_sliding_window=False, dtype="float32",
)  # fmt: skip
PROMPTS, GROUP = 8, 8  # 64 completions a step
PROMPT, NEW = 32, 96  # tokens of a prompt, and of the longest response
SIZES = ()  # sequences of the rollouts that are timed beside the step's own
REAL = os.environ.get("PEERS_MODEL") == "real"
if REAL:  # https://huggingface.co/HuggingFaceTB/SmolLM2-135M; no second depends on the weights' values
  VOCAB, NEW, SIZES = 49152, int(os.environ.get("PEERS_NEW") or 32), (8, 32, 128)
  MODEL = dict(
    model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=VOCAB, hidden_size=576,
    num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3, head_dim=64, intermediate_size=1536,
    max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=100000.0, tie_word_embeddings=True,
    hidden_act="silu", attention_bias=False, mlp_bias=False, dtype="float32",
  )  # fmt: skip
HEAVY_PROMPTS = 32  # 256 requests, in slots or in batches of 64
# Logits of random weights are near uniform: with 21 of 512 ids that end a response, lengths are
# geometric with mean 24, cut at 96.
HEAVY_EOS = tuple(range(300, 321))
NEVER = "<never>"  # the EOS of all other work: a token outside the model's vocabulary
LEARNING_RATE, B1, B2, CLIP_NORM = 1e-6, 0.9, 0.999, 1.0  # AdamW without decay
EPSILON = 0.2
BETAS = (0.0, 0.04)


def questions(count: int, seed: int = 0) -> list[str]:
  """Returns prompts of PROMPT tokens each, all different."""
  rng = random.Random(seed)
  return ["".join(rng.choices(string.ascii_lowercase, k=PROMPT)) for _ in range(count)]


def even_share(text: str) -> float:
  """Returns the reward: the share of its characters that have an even code."""
  return sum(ord(letter) % 2 == 0 for letter in text) / max(len(text), 1)
