"""GiGPO + ESSA: the objective for agents that hardly ever meet the same state twice.

    python -m grpojax.main --config=configs/agent_high_entropy.py --workdir=runs/agent_high_entropy

agent.py with omega = 0.5.  ESSA takes fingerprints of error messages as anchors, which an environment
makes by grpojax/rollout/anchors.py; without one (config.env.name) every completion is one turn.
"""

from ml_collections import ConfigDict

from grpojax.recipes import agent


def get_config(arg: str = "mini") -> ConfigDict:
  c = agent.get_config(arg)
  c.name = "agent_high_entropy"
  c.objective.advantage.omega = 0.5
  return c
