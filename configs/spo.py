"""SPO: one completion per prompt, against a tracker of the prompt's rewards.

    python -m grpojax.main --config=configs/spo.py --workdir=runs/spo

https://arxiv.org/abs/2509.13232.  The baseline is the mean of a Beta tracker per prompt, which starts
from a survey before training and forgets as the policy moves; prompts are drawn by
sqrt(p (1 - p)) + 0.05; advantages are normalised over the batch.  As many completions per step as
the other recipes, each of another prompt.  The paper surveys 8 completions of each prompt; one takes
half a minute here.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "spo"
  c.objective.advantage = dict(fn="mixed_baseline", mix=0.0)
  c.objective.rescale = dict(fn="batch_zscore", ddof=1, eps=1e-8)
  c.objective.surrogate = dict(fn="ppo_clip", low=0.2, high=0.28)
  c.objective.aggregate = dict(fn="token_mean")
  c.baseline.kind = "prompt"
  c.difficulty.update(kind="beta", offline=1, weighted=True)
  c.rollout.update(prompts=c.rollout.prompts * c.rollout.group_size, group_size=1)
  return c
