"""GMPO: the geometric mean of the ratios, each clipped before.  https://arxiv.org/abs/2507.20673

    python -m grpojax.main --config=configs/gmpo.py --workdir=runs/gmpo
    ... --config.objective.ratio.low=0.2 --config.objective.ratio.high=0.2

The clip range e^-0.4 .. e^0.4 and eps = 1e-8 are the paper's and its code's.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "gmpo"
  c.objective.advantage = dict(fn="zscore", eps=1e-8, ddof=1)
  c.objective.ratio = dict(fn="geometric", low=0.4, high=0.4)
  c.objective.surrogate = dict(fn="linear")
  c.objective.aggregate = dict(fn="sequence_mean")
  return c
