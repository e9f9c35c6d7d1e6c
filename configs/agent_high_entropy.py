"""GiGPO + ESSA: the objective for agents that hardly ever meet the same state twice.

    python -m grpojax.main --config=configs/agent_high_entropy.py --workdir=runs/agent_high_entropy

agent.py with omega = 0.5 on the desk of configs/games.py, whose anchors are ESSA's: fingerprints of error
messages.  At scales without an environment (config.env.name) every completion is one turn.
"""

from ml_collections import ConfigDict

from grpojax.recipes import agent


def get_config(arg: str = "desk") -> ConfigDict:
  c = agent.get_config(arg)
  c.name = "agent_high_entropy"
  c.objective.advantage.omega = 0.5
  return c
