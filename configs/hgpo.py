"""HGPO: a turn's advantage among turns that agree in their last states, the more of them the more it weighs.

    python -m grpojax.main --config=configs/hgpo.py --workdir=runs/hgpo       # plays FrozenLake: games.py
    ... --config.objective.advantage.base_group=True     # the trajectory's advantage as one level more

https://arxiv.org/abs/2602.22817: K = 2 states before the turn's own, alpha 1, gamma 0.95, KL 0.01.  At scales
without an environment (config.env.name) every completion is one turn.
"""

from ml_collections import ConfigDict

from grpojax.recipes import gigpo


def get_config(arg: str = "lake") -> ConfigDict:
  c = gigpo.get_config(arg)
  c.name = "hgpo"
  c.objective.advantage = dict(
    fn="hgpo", history=2, alpha=1.0, gamma=0.95, std=True, base_group=False, penalty=0.0, eps=1e-6
  )
  return c
