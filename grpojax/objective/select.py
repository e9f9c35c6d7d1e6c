"""Which tokens count at all?  batch -> 0/1, [P, G, T] or any shape that broadcasts to it.

Runs before `aggregate`: what is dropped here leaves the policy term, the penalties and every
denominator but the B of `constant`.  Each filter sees the same batch, so their order is nothing.
"""

import jax.numpy as jnp

from grpojax.objective import stats
from grpojax.objective.fields import field
from grpojax.types import Array, Batch


def mixed_groups(batch: Batch) -> Array:
  """Groups whose accuracies differ: 0 < Σ accuracy < G.  DAPO eq. 11, https://arxiv.org/abs/2503.14476

  Accuracy and not reward: a length penalty makes a group of right answers look mixed.
  """
  return (stats.spread(batch.accuracy, batch.valid, axis=1) > 0)[..., None]


def finished(batch: Batch) -> Array:
  """Completions that reached an EOS (overlong filtering).  DAPO section 3.4

  Their rewards stay in the group's baseline; `shape.finished_only` takes them out of it as well.
  """
  return batch.ended[..., None]


def top_entropy(batch: Batch, *, share=0.2) -> Array:
  """The `share` of tokens where π_old was least certain.  https://arxiv.org/abs/2506.01939

  The quantile is the whole optimiser batch's: per microbatch it would depend on their number.
  """
  entropy, on = jnp.maximum(field(batch, "entropy"), 0), batch.mask > 0
  below = jnp.ceil((1 - share) * (on.sum() - 1))  # the quantile's rank, as TRL's
  return on & (entropy >= stats.kth_largest(entropy, on, on.sum() - below))
