"""Distillation: a small model learns, by SFT, what a large one that RL made a reasoner gets right.

    grpojax pipeline distill --workdir=runs/distill

R1's small models: https://arxiv.org/abs/2501.12948 section 2.4.  On the embedded task the student is half as
wide as the base, of a cold start of its own; with a model of one's own set `student` below.
"""

from ml_collections import ConfigDict

from grpojax.recipes import grpo


def student(c: ConfigDict) -> dict:
  """Returns the stage that makes the student: half of the base's width, and half of its layers."""
  if "path" in c.model:
    return dict(name="student", kind="base", model=dict(path=c.model.path))
  halves = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
  sizes = {size: c.model[size] // 2 for size in (*halves, "intermediate_size")}
  return dict(name="student", kind="base", model=sizes)


def get_config(arg: str = "mini") -> ConfigDict:
  c = grpo.get_config(arg)
  c.name = "distill"
  c.stages = [
    ConfigDict(student(c)),
    ConfigDict(dict(name="before", kind="evaluate", init="student")),
    ConfigDict(dict(name="teacher", kind="rl", init="base")),
    ConfigDict(dict(name="answers", kind="sample", init="teacher")),
    ConfigDict(dict(name="distill", kind="sft", init="student", samples="answers")),
    ConfigDict(dict(name="after", kind="evaluate", init="distill")),
  ]
  return c
