"""ESSA: GiGPO whose anchors are fingerprints of the validator's last answer.

    python -m grpojax.main --config=configs/essa.py --workdir=runs/essa       # plays the desk: games.py

omega = 0.5 because the first turn's anchor, the prompt, repeats the comparison of trajectories.  From
the author's code and draft; no results are published.  The desk makes such anchors by
grpojax/rollout/anchors.py; at scales without an environment (config.env.name) every completion is one turn.
"""

from ml_collections import ConfigDict

from grpojax.recipes import gigpo


def get_config(arg: str = "desk") -> ConfigDict:
  c = gigpo.get_config(arg)
  c.name = "essa"
  c.objective.advantage.update(omega=0.5, std=False)
  return c
