"""DPPO: a trust region in probability and not in the ratio.  https://arxiv.org/abs/2602.04879

    python -m grpojax.main --config=configs/dppo.py --workdir=runs/dppo
    ... --config.objective.surrogate="{'fn': 'dppo_kl', 'low': 0.05, 'high': 0.05}"    # binary KL for TV

A clipped ratio stops a token of probability 0.01 at 0.012 and lets one of 0.75 go to 0.9.  Bounds and w_max
are the authors'; the policy that is compared with is the sampler's.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "dppo"
  c.objective.surrogate = dict(fn="dppo_tv", low=0.2, high=0.2, w_max=20.0, form="sg")
  c.objective.aggregate = dict(fn="token_mean")
  c.objective.shape.bypass = dict(fn="bypass")
  return c
