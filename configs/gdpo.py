"""GDPO: several rewards, each normalised in its group before they are added.  https://arxiv.org/abs/2601.05242

    python -m grpojax.main --config=configs/gdpo.py --workdir=runs/gdpo
    ... --config.reward.soft_overlong.weight=0.5
    ... --config.objective.rescale="{'fn': 'whiten'}"           # over tokens, as verl and the authors' verl

Added first, (right, long) and (wrong, short) may have one sum, and then one advantage.  Here the second
reward is DAPO's punishment of length.  eps = 1e-4 twice, as TRL, which with NeMo RL normalises the sum over
completions.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "gdpo"
  budget = c.rollout.get_ref("max_tokens")
  c.objective.advantage = dict(fn="gdpo", eps=1e-4, ddof=1)
  c.objective.rescale = dict(fn="batch_zscore", ddof=1, eps=1e-4)
  c.objective.aggregate = dict(fn="token_mean")
  c.reward.soft_overlong = dict(fn="shaping:soft_overlong", max_tokens=budget, cache=budget // 5)
  return c
