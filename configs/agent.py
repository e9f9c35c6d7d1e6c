"""GiGPO + Dr. GRPO: the objective for agents that meet the same state more than once.

    python -m grpojax.main --config=configs/agent.py --workdir=runs/agent     # plays FrozenLake: games.py

GiGPO without the division by the standard deviation (std=False), a constant denominator, no KL.
At scales without an environment (config.env.name) this trains as Dr. GRPO with A times 1 + omega.
"""

from ml_collections import ConfigDict

from grpojax.recipes import gigpo


def get_config(arg: str = "lake") -> ConfigDict:
  c = gigpo.get_config(arg)
  c.name = "agent"
  c.objective.advantage.std = False
  c.objective.aggregate = dict(fn="constant", budget=c.rollout.get_ref("max_tokens"))
  del c.objective.penalty.kl
  c.reference = ""
  return c
