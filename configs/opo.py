"""OPO: strictly on-policy, with the baseline weighted by lengths.  https://arxiv.org/abs/2505.23585

    python -m grpojax.main --config=configs/opo.py --workdir=runs/opo

One update per rollout: without a ratio it has to be on-policy.  No KL, no entropy bonus, as in the paper.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "opo"
  c.objective.advantage = dict(fn="opo")
  c.objective.surrogate = dict(fn="reinforce")
  c.objective.aggregate = dict(fn="token_mean")
  c.updates_per_rollout = 1
  return c
