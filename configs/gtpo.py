"""GTPO: token rewards shaped by entropy: uncertain right tokens gain, certain wrong ones lose.

    python -m grpojax.main --config=configs/gtpo.py --workdir=runs/gtpo
    ... --config.objective.advantage.low=1e-3 --config.objective.advantage.high=100.
    ... --config.objective.advantage.pool=own        # another reading, see objective/advantage.py

https://arxiv.org/abs/2508.04349: alpha 1 and 0.1, G = 16.  "Entropy is clipped at 0.2, 0.28" may
mean DAPO's clip range; both are set here.  Its length penalty (appendix D) is a reward:
dict(fn="shaping:group_relative_overlong", easy=0.7).
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "gtpo"
  c.objective.advantage = dict(fn="gtpo", alpha1=1.0, alpha2=0.1, low=0.2, high=0.28, pool="all")
  c.objective.surrogate = dict(fn="ppo_clip", low=0.2, high=0.28)
  c.objective.aggregate = dict(fn="token_mean")
  return c
