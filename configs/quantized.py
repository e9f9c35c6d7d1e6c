"""Quantised rollouts: the sampler in int8, the learner in full, truncated importance weights between them.

    python -m grpojax.main --config=configs/quantized.py --workdir=runs/quantized
    ... --config.objective.correct="{'icepop': {'fn': 'icepop', 'low': 0.5, 'high': 5.0}}"
    ... --config.objective.correct="{}"                            # as if the sampler were the learner
    ... --config.rollout.kv_cache=full

FlashRL, https://fengyao.notion.site/flash-rl; the bound is TIS's, https://fengyao.notion.site/off-policy-rl.
Watch sampling/*: how far the sampler is from the policy that is trained.  Evaluation is in full precision.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "quantized"
  c.rollout.update(weights="int8", kv_cache="int8")
  c.objective.correct.tis = dict(fn="truncated_is", high=2.0)
  return c
