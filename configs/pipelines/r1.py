"""R1: cold start, RL, rejection sampling, SFT from the base, RL again.  https://arxiv.org/abs/2501.12948

    grpojax pipeline r1 --workdir=runs/r1

With a model of one's own (scales `local`, `pocket`) all RL rewards a consistent language, too, as section
2.3.2 has it.  The embedded task carries R1's order and what hands on what, with these differences: the cold
start's few demonstrations are those of the task without its flaws, in the format that the base hardly knows
(r1_zero.py); its answers have hardly a word, so that no language is rewarded; all questions have a rule, so
that the last RL needs no reward model (`only` of docs/slots.md routes to one); and the second SFT learns kept
answers alone.
"""

from ml_collections import ConfigDict

from grpojax.recipes import grpo, stages
from grpojax.recipes.pipelines.r1_zero import reward_a_new_format


def get_config(arg: str = "mini") -> ConfigDict:
  c = grpo.get_config(arg)
  c.name = "r1"
  reward_a_new_format(c)
  if "path" in c.model:
    c.reward.language = dict(fn="shaping:language_consistency", script="LATIN", weight=1.0)  # R1 adds them up
  c.stages = stages.between_evaluations(links(c))
  return c


def links(c: ConfigDict) -> list[dict]:
  """Returns the stages between the two evaluations."""
  few = stages.flawless(c)  # demonstrations; with a model of one's own those of a file, config.sft.path
  if few:
    few["train"] = min(512, c.data.train)
  short = dict(steps=max(c.sft.steps // 4, 1))
  weak = dict(penalty=dict(kl=dict(beta=1e-3)))  # R1's coefficient; GRPO's is 0.04
  return [
    dict(name="cold", kind="sft", init="base", data=few, sft=short),
    dict(name="reason", kind="rl", objective=weak),
    dict(name="reject", kind="sample"),
    dict(name="again", kind="sft", init="base", samples="reject"),
    dict(name="all", kind="rl"),
  ]
