"""Whole steps in TRL's GRPOTrainer, on the device that torch finds.  Written for trl 1.16.0, torch 2.13.

    python on_trl.py '{"hidden_size": 896, ..., "prompts": 4, "group_size": 16, "prompt": 512, "new": 2048}'

A Qwen2 of random weights in bfloat16; no token ends a response.  The last line is JSON: seconds of each
step but the first, versions, device.
"""

import json
import os
import sys
import tempfile
import time

os.environ |= dict(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRL_EXPERIMENTAL_SILENCE="1")

import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, TrainerCallback

ROWS = 4  # of a forward and backward pass: what logits of the whole vocabulary leave room for


def reward(completion_ids, **_):
  """Returns the share of even tokens."""
  return [sum(token % 2 == 0 for token in ids) / len(ids) for ids in completion_ids]


def words(count: int) -> PreTrainedTokenizerFast:
  """Makes a tokenizer of numbers: "1 7 5" is three tokens.  The EOS is outside the vocabulary."""
  vocabulary = {str(i): i for i in range(count)} | {"<never>": count}
  backend = Tokenizer(models.WordLevel(vocabulary, unk_token="0"))
  backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
  special = dict(pad_token="0", eos_token="<never>")
  return PreTrainedTokenizerFast(tokenizer_object=backend, padding_side="left", **special)


def config(asked: dict, cpu: bool) -> trl.GRPOConfig:
  rows = asked["prompts"] * asked["group_size"]
  return trl.GRPOConfig(
    output_dir=tempfile.mkdtemp(), max_steps=1 + asked["steps"], save_strategy="no", report_to="none",
    disable_tqdm=True, use_cpu=cpu, bf16=not cpu, gradient_checkpointing=True,
    per_device_train_batch_size=ROWS, gradient_accumulation_steps=rows // ROWS,
    num_generations=asked["group_size"], max_completion_length=asked["new"], temperature=1.0, top_k=0,
    num_iterations=1, beta=0.0, optim="adamw_torch", learning_rate=1e-6, lr_scheduler_type="constant",
    weight_decay=0.0, max_grad_norm=1.0, seed=0,
  )  # fmt: skip


class Clock(TrainerCallback):
  """Callback that takes the seconds from the beginning of each step to its end."""

  def __init__(self):
    self.seconds = []

  def on_step_begin(self, *_, **__):
    _settle()
    self.began = time.perf_counter()

  def on_step_end(self, *_, **__):
    _settle()
    self.seconds.append(time.perf_counter() - self.began)


def _settle() -> None:
  if torch.cuda.is_available():
    torch.cuda.synchronize()


def main():
  asked = json.loads(sys.argv[1])
  sizes = {key: value for key, value in asked.items() if key in Qwen2Config().to_dict() or key == "head_dim"}
  cpu = not torch.cuda.is_available()
  model = Qwen2ForCausalLM(Qwen2Config(**sizes, eos_token_id=None, bos_token_id=None)).to(torch.bfloat16)
  below = min(asked["vocab_size"], 1000)
  prompts = [" ".join(str((7 * i + j) % below) for j in range(asked["prompt"])) for i in range(64)]
  clock = Clock()
  trainer = trl.GRPOTrainer(
    model=model, reward_funcs=reward, args=config(asked, cpu), callbacks=[clock],
    processing_class=words(asked["vocab_size"]), train_dataset=Dataset.from_dict({"prompt": prompts}),
  )  # fmt: skip
  trainer.train()
  device = "CPU" if cpu else torch.cuda.get_device_name()
  versions = {module.__name__: module.__version__ for module in (trl, torch, transformers)}
  print(json.dumps(dict(seconds=clock.seconds[1:], versions=versions, device=device)))


if __name__ == "__main__":
  main()
