"""LUSPO: GSPO times length, so that its ratio no longer prefers short answers.

    python -m grpojax.main --config=configs/luspo.py --workdir=runs/luspo

https://arxiv.org/abs/2602.05261; the mean is over all completions, as TRL.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "luspo"
  c.objective.ratio = dict(fn="sequence")
  c.objective.surrogate = dict(fn="ppo_clip", low=3e-4, high=4e-4)
  c.objective.aggregate = dict(fn="sequence_sum", rows="all")
  return c
