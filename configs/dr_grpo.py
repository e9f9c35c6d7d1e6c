"""Dr. GRPO: GRPO without its two normalisers, 1/length and 1/std.  https://arxiv.org/abs/2503.20783

    python -m grpojax.main --config=configs/dr_grpo.py --workdir=runs/dr_grpo
    ... --config.objective.aggregate.budget=3000     # the authors' constant

No KL and clip 0.2, as the paper.  Dividing by a constant changes only what the learning rate means;
it must not change during a run, so it is the response budget and never the width of a batch.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "dr_grpo"
  c.objective.advantage = dict(fn="center")
  c.objective.surrogate = dict(fn="ppo_clip", low=0.2, high=0.2)
  c.objective.aggregate = dict(fn="constant", budget=c.rollout.get_ref("max_tokens"))
  return c
