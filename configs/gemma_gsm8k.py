"""Gemma 3 1B (text, tuned to instructions) learns GSM8K by GRPO: one GPU, eight chips of TPU v5e, or one.

    python -m grpojax.main --config=configs/gemma_gsm8k.py:gpu
    ./tpu_setup.sh here python -m grpojax.main --config=configs/gemma_gsm8k.py:v5e8
    ./tpu_setup.sh here python -m grpojax.main --config=configs/gemma_gsm8k.py:v5e1    # adapters alone

What is not of the model is as in configs/qwen_gsm8k.py.  The model is gated: who has accepted its licence on
the hub gives a token, HF_TOKEN.  Nobody has run it.  Predictions, by arithmetic (docs/hardware.md): v5e8 7
GiB of a chip and 0.8 hours at most, v5e1 8 GiB and 3.4, an H100 21 GiB and 0.9.
"""

from ml_collections import ConfigDict

from grpojax.recipes import qwen_gsm8k


def get_config(arg: str = "gpu") -> ConfigDict:
  c = qwen_gsm8k.get_config(arg)
  c.name = "gemma_gsm8k"
  c.model.path = "google/gemma-3-1b-it"
  if arg == "v5e1":  # float32 parameters, moments and gradients would take all of the chip's 16 GB
    c.model.param_dtype = "bfloat16"
    c.lora.rank = 16
    c.optimizer.learning_rate *= 10
  return c
