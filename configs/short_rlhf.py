"""Short answers, learned reward: RLOO + Dr. GRPO, which is G / (G - 1) times Dr. GRPO.

    python -m grpojax.main --config=configs/short_rlhf.py --workdir=runs/rlhf
    ... --config.objective.surrogate="{'fn': 'reinforce'}" --config.updates_per_rollout=1
"""

from ml_collections import ConfigDict

from grpojax.recipes import dr_grpo


def get_config(arg: str = "mini") -> ConfigDict:
  c = dr_grpo.get_config(arg)
  c.name = "short_rlhf"
  c.objective.advantage = dict(fn="leave_one_out")
  return c
