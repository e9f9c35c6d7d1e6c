"""R1-Zero: reinforcement learning from the base alone, by accuracy and format.  https://arxiv.org/abs/2501.12948

    grpojax pipeline r1_zero --workdir=runs/r1_zero
    grpojax pipeline r1_zero:tiny ...

The embedded task's base is its cold start, which plays the part of pretraining: it has seen demonstrations, a
third of them wrong, and no reward.  The format is the task's own: steps, then the marked answer on a line of
its own, and nothing behind it.  The base hardly knows this format: nine in ten of its demonstrations end with
the last step.  `eval/answered` is the share of answers in the format.
"""

from ml_collections import ConfigDict

from grpojax.recipes import grpo

UNMARKED = 0.9  # the rest is what RL finds the format by: what is never sampled is never rewarded


def get_config(arg: str = "mini") -> ConfigDict:
  c = grpo.get_config(arg)
  c.name = "r1_zero"
  reward_a_new_format(c)
  c.stages = [
    ConfigDict(dict(name="before", kind="evaluate", init="base")),
    ConfigDict(dict(name="rl", kind="rl", init="base")),
    ConfigDict(dict(name="after", kind="evaluate", init="previous")),
  ]
  return c


def reward_a_new_format(c: ConfigDict) -> None:
  """Rewards the marked answer, which the embedded task's base then hardly knows."""
  c.reward.format = dict(fn="rules:marked_line", marker="#", weight=0.1)
  if c.data.task == "mini_aime":
    c.data.unmarked = UNMARKED
