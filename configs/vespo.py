"""VESPO: the completion's exact ratio, weighted by a soft bump around 1.  https://arxiv.org/abs/2602.10693

    python -m grpojax.main --config=configs/vespo.py --workdir=runs/vespo
    ... --config.objective.surrogate.lambda_neg=3.0

The ratio is to the sampler's policy and corrects for staleness and mismatch at once.  It is a product: over
long completions it soon leaves 1, and such completions teach nothing.  k and λ are the authors' code's.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "vespo"
  c.objective.ratio = dict(fn="sequence_product")
  c.objective.surrogate = dict(fn="vespo", k_pos=2.0, lambda_pos=3.0, k_neg=3.0, lambda_neg=2.0)
  c.objective.aggregate = dict(fn="token_mean")
  c.objective.shape.bypass = dict(fn="bypass")
  return c
