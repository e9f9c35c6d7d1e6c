"""Many turns, no state twice: GiGPO + ESSA.  agent.py with error fingerprints as anchors.

    python -m grpojax.main --config=configs/agent_high_entropy.py --workdir=runs/agent_high_entropy
"""

from ml_collections import ConfigDict

from configs import agent


def get_config(arg: str = "mini") -> ConfigDict:
  c = agent.get_config(arg)
  c.name = "agent_high_entropy"
  c.objective.advantage.omega = 0.5
  return c
