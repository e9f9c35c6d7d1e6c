"""GRPO: the group is the baseline.  https://arxiv.org/abs/2402.03300

    python -m grpojax.main --config=configs/grpo.py --workdir=runs/grpo
    python -m grpojax.main --config=configs/grpo.py:tiny                     # a few seconds
    python -m grpojax.main --config=configs/grpo.py:lake                     # plays FrozenLake: games.py
    ... --config.objective.penalty.kl.fn=kl_k2       # the exact gradient, see penalty.py

beta = 0.04 is the paper's.  ddof = 1, eps = 1e-6 (verl, tunix, slime) and the clip range 0.2 (TRL,
verl) are their code's: the paper gives none.  R1 (https://arxiv.org/abs/2501.12948) has G = 16,
beta = 1e-3.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "grpo"
  c.objective.advantage = dict(fn="zscore", eps=1e-6, ddof=1)
  c.objective.surrogate = dict(fn="ppo_clip", low=0.2, high=0.2)
  c.objective.aggregate = dict(fn="sequence_mean")
  c.objective.penalty.kl = dict(fn="kl_k3", beta=0.04)
  c.reference = "init"
  return c
