"""ESSA: GiGPO whose anchors are fingerprints of the validator's last answer (agents/anchors.py).

    python -m grpojax.main --config=configs/essa.py --workdir=runs/essa

omega = 0.5 because the first turn's anchor, the prompt, repeats the comparison of episodes.  From
the author's code and draft; no results are published.
"""

from ml_collections import ConfigDict

from configs import gigpo


def get_config(arg: str = "mini") -> ConfigDict:
  c = gigpo.get_config(arg)
  c.name = "essa"
  c.objective.advantage.update(omega=0.5, std=False)
  return c
