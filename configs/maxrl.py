"""MaxRL: advantages over the group's mean, so that hard prompts weigh more.  https://arxiv.org/abs/2602.02710

    python -m grpojax.main --config=configs/maxrl.py --workdir=runs/maxrl
    ... --config.objective.advantage.all_wrong=minus_one      # groups without a right answer are pushed away

For one right answer of probability p, it climbs the terms of log p up to pass@(G - 1), where GRPO without a
deviation climbs p = pass@1 alone.  Rewards are 0 or 1; a mean of 0 or less gives 0.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "maxrl"
  c.objective.advantage = dict(fn="maxrl", eps=0.0, all_wrong="zero")
  c.objective.aggregate = dict(fn="token_mean")
  return c
