"""DAPO: clip-higher, dynamic sampling, token-level loss, soft overlong punishment.

    python -m grpojax.main --config=configs/dapo.py --workdir=runs/dapo
    grpojax podcheck --config=configs/dapo.py:paper --topology=v5p:4x4x4   # would it fit?
    ... --config.dynamic_sampling.enabled=False                              # an ablation each
    ... --config.objective.surrogate.high=0.2
    ... --config.objective.aggregate.fn=sequence_mean
    ... --config.objective.select="{'finished': {'fn': 'finished'}}"         # overlong filtering

https://arxiv.org/abs/2503.14476: clip 0.2/0.28, no KL, G = 16, cache 4096 of a budget of 20480.
The paper writes 1 / sum of lengths per prompt (`prompt_mean`); verl and TRL count the batch.
Filtering and punishing act on the same completions; the best published runs have no filter.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "dapo"
  budget = c.rollout.get_ref("max_tokens")
  c.objective.surrogate = dict(fn="ppo_clip", low=0.2, high=0.28)
  c.objective.aggregate = dict(fn="token_mean")
  c.objective.select.mixed_groups = dict(fn="mixed_groups")
  c.dynamic_sampling.enabled = True
  c.reward.soft_overlong = dict(fn="shaping:soft_overlong", max_tokens=budget, cache=budget // 5)
  return c
