"""The workload in TRL's GRPOTrainer on torch.  Written for trl 1.16.0, transformers 5, torch 2.13.

    python on_trl.py FOLDER BETA [bfloat16]

`transformers.generate`, which TRL calls, also does the rollouts that are timed alone.  With bfloat16
parameters and moments stay float32, and products are bfloat16 (TRL's bf16=True).
"""

import os
import sys
import tempfile

import serve  # first: what follows prints

os.environ |= dict(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRL_EXPERIMENTAL_SILENCE="1")

import torch
import transformers
import trl
import workload as w
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, TrainerCallback


def reward(completions, **_):
  return [w.even_share(text) for text in completions]


def config(beta: float, bf16: bool) -> trl.GRPOConfig:
  return trl.GRPOConfig(
    output_dir=tempfile.mkdtemp(), max_steps=10**6, save_strategy="no", logging_steps=1,
    report_to="none", disable_tqdm=True, use_cpu=True, fp16=False,
    bf16=bf16, gradient_checkpointing=False, per_device_train_batch_size=w.PROMPTS * w.GROUP,
    gradient_accumulation_steps=1, num_generations=w.GROUP, max_completion_length=w.NEW,
    temperature=1.0, top_p=1.0, top_k=0, num_iterations=1, beta=beta, epsilon=w.EPSILON,
    loss_type="grpo", scale_rewards="group", optim="adamw_torch", learning_rate=w.LEARNING_RATE,
    lr_scheduler_type="constant", weight_decay=0.0, adam_beta1=w.B1, adam_beta2=w.B2,
    max_grad_norm=w.CLIP_NORM, seed=0,
  )  # fmt: skip


class Steps(TrainerCallback):
  gate = None

  def on_step_begin(self, *_, **__):
    self.gate()


def rollout(model, ids, eos, at_once=w.PROMPTS * w.GROUP):
  """Returns a call that samples `ids` in batches of `at_once`, each until all its rows have ended."""
  how = GenerationConfig(
    max_new_tokens=w.NEW, do_sample=True, temperature=1.0, top_p=1.0, top_k=0, eos_token_id=eos,
    pad_token_id=0, bos_token_id=None, disable_compile=True,
  )  # fmt: skip
  ends = torch.tensor(eos or [w.VOCAB])

  @torch.no_grad()
  def call() -> int:
    useful = 0
    for rows in ids.split(at_once):
      sequences = model.generate(rows, attention_mask=torch.ones_like(rows), generation_config=how)
      ended = torch.isin(sequences[:, w.PROMPT :], ends)
      useful += int((ended.cumsum(1) - ended.long() == 0).sum())  # up to the first EOS, with it
    return useful

  return call


def logprobs(trainer, model, ids):
  """Returns a call of TRL's pass for the old policy or the reference, over 64 x 128 tokens."""
  ids = torch.cat([ids, ids.repeat(1, w.NEW // w.PROMPT)], dim=1)
  mask = torch.ones_like(ids)

  @torch.no_grad()
  def call() -> int:
    trainer._get_per_token_logps_and_entropies(model, ids, mask, w.NEW)
    return 0

  return call


def main():
  folder, beta, bf16 = sys.argv[1], float(sys.argv[2]), "bfloat16" in sys.argv[3:]
  tokenizer = AutoTokenizer.from_pretrained(folder)
  tokenizer.add_special_tokens({"eos_token": w.NEVER})
  model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
  questions = w.questions(512)
  steps = Steps()
  trainer = trl.GRPOTrainer(
    model=model, reward_funcs=reward, args=config(beta, bf16), processing_class=tokenizer,
    train_dataset=Dataset.from_dict({"prompt": questions}), callbacks=[steps],
  )  # fmt: skip

  ids = torch.tensor([tokenizer(text)["input_ids"] for text in questions[: w.HEAVY_PROMPTS]])
  assert ids.shape == (w.HEAVY_PROMPTS, w.PROMPT), ids.shape
  ids = ids.repeat_interleave(w.GROUP, 0)
  calls = {
    "rollout": rollout(model, ids[: w.PROMPTS * w.GROUP], None),
    "heavy": rollout(model, ids, list(w.HEAVY_EOS)),
    "logprobs": logprobs(trainer, model, ids[: w.PROMPTS * w.GROUP]),
  }
  calls |= {f"rollout{n}": rollout(model, ids[:n], None, n) for n in w.SIZES}
  versions = {module.__name__: module.__version__ for module in (trl, torch, transformers)}
  steps.gate = serve.Gate(calls, lambda: None, versions)
  trainer.train()


if __name__ == "__main__":
  main()
