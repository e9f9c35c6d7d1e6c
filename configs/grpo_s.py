"""GRPO-S: GTPO with one entropy per completion and the arithmetic mean of the ratios.

    python -m grpojax.main --config=configs/grpo_s.py --workdir=runs/grpo_s

https://arxiv.org/abs/2508.04349: beta 1 and 0.1; entropies clamped as in gtpo.py.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "grpo_s"
  c.objective.advantage = dict(fn="grpo_s", beta1=1.0, beta2=0.1, low=0.2, high=0.28, pool="all")
  c.objective.ratio = dict(fn="arithmetic")
  c.objective.surrogate = dict(fn="ppo_clip", low=0.2, high=0.28)
  c.objective.aggregate = dict(fn="sequence_mean")
  return c
