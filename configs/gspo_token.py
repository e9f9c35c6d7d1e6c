"""GSPO-token: the completion's ratio decides what is clipped, each token keeps its own gradient.

    python -m grpojax.main --config=configs/gspo_token.py --workdir=runs/gspo_token

https://arxiv.org/abs/2507.18071, equation 14.  Equal to GSPO where a completion has one A; it is
for advantages that differ along a completion, and for other aggregations.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "gspo_token"
  c.objective.ratio = dict(fn="sequence_token")
  c.objective.surrogate = dict(fn="ppo_clip", low=3e-4, high=4e-4)
  c.objective.aggregate = dict(fn="sequence_mean")
  return c
