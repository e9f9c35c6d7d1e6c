"""CISPO: clips the weight of a token and never its gradient.  https://arxiv.org/abs/2506.13585

    python -m grpojax.main --config=configs/cispo.py --workdir=runs/cispo
    ... --config.objective.surrogate.w_max=1.28

With DAPO's dynamic sampling and length penalty, as MiniMax-M1.  The paper tunes one bound and does
not publish it; w_max = 5 is ScaleRL's, an absolute ratio.  Its loss is no measure of progress.
"""

from ml_collections import ConfigDict

from grpojax.recipes import dapo


def get_config(arg: str = "mini") -> ConfigDict:
  c = dapo.get_config(arg)
  c.name = "cispo"
  c.objective.surrogate = dict(fn="cispo", w_max=5.0, w_min=0.0)
  return c
