"""Qwen2.5-0.5B-Instruct learns GSM8K by GRPO: one GPU, eight chips of TPU v5e, or one.

    python -m grpojax.main --config=configs/qwen_gsm8k.py:gpu
    ./tpu_setup.sh here python -m grpojax.main --config=configs/qwen_gsm8k.py:v5e8
    ./tpu_setup.sh here python -m grpojax.main --config=configs/qwen_gsm8k.py:v5e1
    ... --config.model.path=Qwen/Qwen2.5-1.5B-Instruct                       # not on v5e1

Model and questions come from the hub by their ids.  Nobody has run it.  Predictions (docs/hardware.md has the
launch lines, and how they were made): v5e1 12.1 GiB and at most 1.9 hours; v5e8 0.4; an H100 0.4.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base

MACHINES = ("gpu", "v5e8", "v5e1")


def get_config(arg: str = "gpu") -> ConfigDict:
  if arg not in MACHINES:
    raise ValueError(f"The machine {arg!r} is unknown to qwen_gsm8k; choose one of {', '.join(MACHINES)}.")
  c = base.get_config("local")
  c.name = "qwen_gsm8k"
  c.model.path = "Qwen/Qwen2.5-0.5B-Instruct"
  c.data.update(path="openai/gsm8k", test_path="openai/gsm8k", prompt_budget=384)
  c.steps = 234  # two epochs of 7,473 questions
  c.rollout.update(prompts=64, group_size=8, max_tokens=512, slots=256, segment=64)
  c.updates_per_rollout = 2
  c.microbatches = 16
  c.remat = "attention"
  c.optimizer.learning_rate = 3e-6  # between verl's 1e-6 for 7B and the 1e-5 of configs/smollm2.py for 0.1B
  c.eval.update(every=39, prompts=256, samples=8)  # as many as group_size: the rollout's program serves both
  c.checkpoint.update(every=39, keep=1)  # 6 GB, and as much again while the next one is written
  if arg == "v5e8":
    c.rollout.slots = 512  # all completions of a rollout
    c.microbatches = 4
    c.mesh.update(data=1, fsdp=-1)
    c.mesh.sampler.tensor = 1  # each chip decodes its own prompts, from a copy in bfloat16
  if arg == "v5e1":
    c.rollout.slots = 128
  return c
