"""M2PO: no clip; the batch's farthest tokens are dropped until a second moment holds.

    python -m grpojax.main --config=configs/m2po.py --workdir=runs/m2po --config.staleness=4
    ... --config.objective.batch_veto.m2po.tau=0.02

https://arxiv.org/abs/2510.01161, algorithm 1, for rollouts that are many updates old.  The moment is that of
the whole optimiser batch under the policy that is updated: one more forward pass an update.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "m2po"
  c.objective.surrogate = dict(fn="linear")
  c.objective.batch_veto.m2po = dict(fn="m2po", tau=0.04, scope="harmful")
  c.objective.aggregate = dict(fn="token_mean")
  c.objective.shape.bypass = dict(fn="bypass")
  return c
