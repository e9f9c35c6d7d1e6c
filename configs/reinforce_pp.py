"""REINFORCE++: no group at all; returns to go, whitened over the batch.

    python -m grpojax.main --config=configs/reinforce_pp.py --workdir=runs/reinforce_pp
    ... --config.rollout.group_size=1 --config.rollout.prompts=128   # as the paper
    ... --config.objective.rescale.ddof=0                            # OpenRLHF; verl and slime: 1

https://arxiv.org/abs/2501.03262.  KL (k1) is in the token rewards, beta = 0.01 (OpenRLHF).
Each token is a sample of the whitening, so long completions count more.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "reinforce_pp"
  c.objective.advantage = dict(fn="return_to_go", beta=0.01)
  c.objective.rescale = dict(fn="whiten", ddof=1, eps=1e-8)
  c.objective.surrogate = dict(fn="ppo_clip", low=0.2, high=0.2)
  c.objective.aggregate = dict(fn="token_mean")
  c.reference = "init"
  return c
