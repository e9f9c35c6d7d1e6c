"""R1: cold start, RL, rejection sampling, SFT from the base, RL again.  https://arxiv.org/abs/2501.12948

    grpojax pipeline r1 --workdir=runs/r1

The embedded task carries R1's order and what hands on what, with these differences.  The cold start's few
demonstrations are those of the task without its flaws; the task knows one language and one kind of question,
so there is no reward for a consistent language, the second SFT learns nothing but kept answers, and the last
RL has the verifier's reward alone, with a KL penalty from the policy that it starts from.
"""

from ml_collections import ConfigDict

from grpojax.recipes import grpo
from grpojax.recipes.pipelines.r1_zero import FORMAT


def get_config(arg: str = "mini") -> ConfigDict:
  c = grpo.get_config(arg)
  c.name = "r1"
  c.reward.format = FORMAT
  before, after = (dict(name="before", kind="evaluate", init="base"), dict(name="after", kind="evaluate"))
  c.stages = [ConfigDict(stage) for stage in (before, *links(c), after)]
  return c


def links(c: ConfigDict) -> list[dict]:
  """Returns the stages between the two evaluations."""
  few = dict(train=min(512, c.data.train), wrong=0.0, rambling=0.0)  # demonstrations, without a flaw
  short = dict(steps=max(c.sft.steps // 4, 1))
  weak = dict(penalty=dict(kl=dict(beta=1e-3)))  # R1's coefficient; GRPO's is 0.04
  return [
    dict(name="cold", kind="sft", init="base", data=few, sft=short),
    dict(name="reason", kind="rl", objective=weak),
    dict(name="reject", kind="sample"),
    dict(name="again", kind="sft", init="base", samples="reject"),
    dict(name="all", kind="rl"),
  ]
