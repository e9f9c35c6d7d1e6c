"""GSPO-token + GiGPO + Dr. GRPO in one objective, a row being one trajectory.

    python -m grpojax.main --config=configs/stack.py --workdir=runs/stack     # plays FrozenLake: games.py

No public code runs this combination as a whole; what it means here is grpojax/objective/ and its
tests.  At scales without an environment (config.env.name) GiGPO only scales A by 1 + omega.
"""

from ml_collections import ConfigDict

from grpojax.recipes import agent


def get_config(arg: str = "lake") -> ConfigDict:
  c = agent.get_config(arg)
  c.name = "stack"
  c.objective.ratio = dict(fn="sequence_token")
  c.objective.surrogate = dict(fn="ppo_clip", low=3e-4, high=4e-4)
  return c
