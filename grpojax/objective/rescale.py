"""A -> A over the whole optimiser batch.  Sees advantages [P, G] or [P, G, T] and the batch."""

from grpojax.batch import Array, Batch


def identity(advantage: Array, batch: Batch) -> Array:
  """Unchanged."""
  return advantage
