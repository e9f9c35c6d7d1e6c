"""GiGPO: an episode's advantage plus that of the step, among turns that saw the same state.

    python -m grpojax.main --config=configs/gigpo.py --workdir=runs/gigpo     # plays FrozenLake: games.py
    ... --config.objective.advantage.std=False           # as Dr. GRPO; the code's default
    ... --config.objective.advantage.form=rows           # statistics over turns, as its code

https://arxiv.org/abs/2505.10978: omega 1, gamma 0.95, N = 8, KL 0.01.  A row of a batch is a trajectory.
At scales without an environment (config.env.name) every completion is one turn: the turn's advantage repeats
the trajectory's, so that the sum is the trajectory's times 1 + omega.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "lake") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "gigpo"
  c.objective.advantage = dict(
    fn="gigpo", omega=1.0, gamma=0.95, std=True, form="trajectories", penalty=0.0, eps=1e-6, ddof=1
  )
  c.objective.aggregate = dict(fn="token_mean")
  c.objective.penalty.kl = dict(fn="kl_k3", beta=0.01)
  c.reference = "init"
  return c
