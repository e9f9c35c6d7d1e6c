"""Which tokens count at all?  batch -> 0/1, [P, G, T] or any shape that broadcasts to it.

Runs before `aggregate`: what is dropped here leaves the policy term, the penalties and every
denominator but the B of `constant`.  Each filter sees the same batch, so their order is nothing.
"""

from grpojax.batch import Array, Batch
from grpojax.objective import stats


def mixed_groups(batch: Batch) -> Array:
  """Groups whose accuracies differ: 0 < Σ accuracy < G.  DAPO eq. 11, https://arxiv.org/abs/2503.14476

  Accuracy and not reward: a length penalty makes a group of right answers look mixed.
  """
  spread = stats.spread(batch.accuracy, batch.valid, axis=1)
  return _float(spread > 0, batch)[..., None]


def finished(batch: Batch) -> Array:
  """Completions that reached an EOS (overlong filtering).  DAPO section 3.4

  Their rewards stay in the group's baseline; `shape.finished_only` takes them out of it as well.
  """
  return _float(batch.ended, batch)[..., None]


def _float(keep: Array, batch: Batch) -> Array:
  return keep.astype(batch.mask.dtype)
