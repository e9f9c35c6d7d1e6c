"""Mathematics and code, one turn: GRPO + Dr. GRPO + DAPO.

    python -m grpojax.main --config=configs/math_single_turn.py --workdir=runs/math

DAPO's clip-higher, dynamic sampling and soft overlong punishment; Dr. GRPO's advantage, and its
constant denominator in place of DAPO's token mean: a loss has one.
"""

from ml_collections import ConfigDict

from grpojax.recipes import dapo


def get_config(arg: str = "mini") -> ConfigDict:
  c = dapo.get_config(arg)
  c.name = "math_single_turn"
  c.objective.advantage = dict(fn="center")
  c.objective.aggregate = dict(fn="constant", budget=c.rollout.get_ref("max_tokens"))
  return c
