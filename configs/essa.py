"""ESSA: GiGPO whose anchors are fingerprints of the validator's last answer.

    python -m grpojax.main --config=configs/essa.py --workdir=runs/essa

omega = 0.5 because the first turn's anchor, the prompt, repeats the comparison of trajectories.  From
the author's code and draft; no results are published.  An environment makes such anchors by
grpojax/rollout/anchors.py; without one (config.env.name) every completion is one turn.
"""

from ml_collections import ConfigDict

from grpojax.recipes import gigpo


def get_config(arg: str = "mini") -> ConfigDict:
  c = gigpo.get_config(arg)
  c.name = "essa"
  c.objective.advantage.update(omega=0.5, std=False)
  return c
