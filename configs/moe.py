"""Mixture of experts: GSPO, whose mean ratio bears experts that route differently.

    python -m grpojax.main --config=configs/moe.py --workdir=runs/moe
    ... --config.objective.correct="{'band': {'fn': 'geometric_rejection', 'renormalize': True}}"

https://arxiv.org/abs/2507.18071 section 5.3.  Replay of the routing would be the model's business.
"""

from ml_collections import ConfigDict

from configs import gspo


def get_config(arg: str = "mini") -> ConfigDict:
  c = gspo.get_config(arg)
  c.name = "moe"
  return c
