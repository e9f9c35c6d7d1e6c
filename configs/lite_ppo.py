"""Lite PPO: the group's mean, the batch's standard deviation, token-level loss.

    python -m grpojax.main --config=configs/lite_ppo.py --workdir=runs/lite_ppo

https://arxiv.org/abs/2508.08221.  eps = 1e-4 is TRL's (scale_rewards="batch").
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "lite_ppo"
  c.objective.advantage = dict(fn="center")
  c.objective.rescale = dict(fn="batch_std", ddof=1, eps=1e-4)
  c.objective.aggregate = dict(fn="token_mean")
  return c
