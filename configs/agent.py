"""Many turns, states that come back: GiGPO + Dr. GRPO.

    python -m grpojax.main --config=configs/agent.py --workdir=runs/agent

GiGPO without its deviations (std=False), a constant denominator over turns, no KL.
"""

from ml_collections import ConfigDict

from configs import gigpo


def get_config(arg: str = "mini") -> ConfigDict:
  c = gigpo.get_config(arg)
  c.name = "agent"
  c.objective.advantage.std = False
  c.objective.aggregate = dict(fn="constant", budget=c.rollout.get_ref("max_tokens"))
  del c.objective.penalty.kl
  c.reference = ""
  return c
