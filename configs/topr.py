"""TOPR: REINFORCE whose failures fade as they become unlikely, and whose successes never do.

    python -m grpojax.main --config=configs/topr.py --workdir=runs/topr
    ... --config.objective.veto.topr.unit=token                 # as ROLL and Trinity-RFT have it

https://arxiv.org/abs/2503.14286 eq. 8: wrong answers weigh min(π / μ, 1) of the completion, right ones 1; a
product over long wrong answers is soon 0.  Log-probs add up to the completion's, as in the paper.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "topr"
  c.objective.advantage = dict(fn="center")
  c.objective.surrogate = dict(fn="reinforce")
  c.objective.veto.topr = dict(fn="taper_failures", unit="sequence", sign="reward", threshold=0.0)
  c.objective.aggregate = dict(fn="sequence_sum")
  return c
