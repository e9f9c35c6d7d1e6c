"""The default loss of prime-rl: a trust region in probability, and log²-KL on every token.

    python -m grpojax.main --config=configs/prime.py --workdir=runs/prime
    ... --config.objective.surrogate="{'fn': 'tv_band', 'delta': 0.1}"                  # its "ipo"

https://github.com/PrimeIntellect-ai/prime-rl, src/prime_rl/trainer/rl/loss.py.  Its adv_tau is the reward's
weight here, since the advantage is R - mean; its documentation has min(q, delta) in the policy term, its code
and this file have not.  Both terms take the sampler's policy.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "prime"
  c.objective.advantage = dict(fn="center")
  c.objective.surrogate = dict(fn="dppo_tv", low=0.2, high=0.2, w_max=float("inf"), form="grad")
  c.objective.penalty.log2_kl = dict(fn="log2_kl", beta=1e-3, anchor="sampler")
  c.objective.aggregate = dict(fn="token_mean")
  c.objective.shape.bypass = dict(fn="bypass")
  return c
