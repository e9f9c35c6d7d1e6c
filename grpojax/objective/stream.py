"""Which tokens does a component count?  batch -> weight [P, G, T], 0 on all others.

Sees the whole optimiser batch before `select`.  A weight scales its token's loss and is not in the
denominator, which counts the tokens whose weight is not 0.  Rows that are not valid are left out.
"""

import jax.numpy as jnp

from grpojax.objective.fields import field
from grpojax.types import OBSERVATION, Array, Batch


def actions(batch: Batch) -> Array:
  """Every token that the policy sampled."""
  return batch.mask


def right(batch: Batch) -> Array:
  """Tokens of completions that the task's own verdict calls right: accuracy above 1/2."""
  return batch.mask * (batch.accuracy[..., None] > 0.5)


def observations(batch: Batch) -> Array:
  """Tokens of an environment's observations, without the chat template around them."""
  return jnp.where(field(batch, "kind") == OBSERVATION, 1.0, 0.0)
