"""SAPO: a sigmoid gate where others clip, a little tighter for bad answers.

    python -m grpojax.main --config=configs/sapo.py --workdir=runs/sapo
    ... --config.objective.surrogate.tau_neg=1.0

https://arxiv.org/abs/2511.20347: tau 1 and 1.05.  The gate's value at ratio 1 offsets the loss.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "sapo"
  c.objective.surrogate = dict(fn="sapo", tau_pos=1.0, tau_neg=1.05)
  c.objective.aggregate = dict(fn="sequence_mean")
  return c
