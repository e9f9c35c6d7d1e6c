"""Long chains of thought: GRPO + GSPO + Dr. GRPO.

    python -m grpojax.main --config=configs/long_cot.py --workdir=runs/long_cot

The token form of GSPO: the plain one has 1 / length inside its ratio, which no denominator removes.
"""

from ml_collections import ConfigDict

from grpojax.recipes import dr_grpo


def get_config(arg: str = "mini") -> ConfigDict:
  c = dr_grpo.get_config(arg)
  c.name = "long_cot"
  c.objective.ratio = dict(fn="sequence_token")
  c.objective.surrogate = dict(fn="ppo_clip", low=3e-4, high=4e-4)
  return c
