"""RLOO: REINFORCE with the other completions as baseline.  https://arxiv.org/abs/2402.14740

    python -m grpojax.main --config=configs/rloo.py --workdir=runs/rloo
    ... --config.rollout.group_size=4

One update per rollout: without a ratio it has to be on-policy.  The paper (2 and 4 completions) has
a KL penalty in the reward of a learned model; rule rewards need none.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "rloo"
  c.objective.advantage = dict(fn="leave_one_out")
  c.objective.surrogate = dict(fn="reinforce")
  c.objective.aggregate = dict(fn="sequence_sum")
  c.updates_per_rollout = 1
  return c
