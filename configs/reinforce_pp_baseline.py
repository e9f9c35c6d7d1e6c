"""REINFORCE++-baseline: the group's mean as baseline, then whitened over the batch.

    python -m grpojax.main --config=configs/reinforce_pp_baseline.py --workdir=runs/rpp_baseline
    ... --config.objective.penalty.kl.beta=0.01

https://arxiv.org/abs/2501.03262.  KL is k2 in the loss; beta = 1e-5 is OpenRLHF's script.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "reinforce_pp_baseline"
  c.objective.advantage = dict(fn="center")
  c.objective.rescale = dict(fn="whiten", ddof=1, eps=1e-8)
  c.objective.surrogate = dict(fn="ppo_clip", low=0.2, high=0.2)
  c.objective.aggregate = dict(fn="token_mean")
  c.objective.penalty.kl = dict(fn="kl_k2", beta=1e-5)
  c.reference = "init"
  return c
