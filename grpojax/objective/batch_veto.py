"""What is dropped because of where θ has moved in the whole batch?  logp, batch -> 0/1 [P, G, T].

Runs before the optimiser batch is cut into microbatches, on log-probs that the update computes for it: one
more forward pass.  It has no gradient; denominators and penalties stay.
"""

import jax.numpy as jnp

from grpojax.objective import stats
from grpojax.types import Array, Batch


def m2po(logp: Array, batch: Batch, *, tau=0.04, scope="harmful") -> Array:
  """Drops the largest log² r until their mean is at most tau.  M2PO, https://arxiv.org/abs/2510.01161

  r = π_θ / π_old, and π_old is the sampler's after `shape.bypass`.  scope "harmful": over and of the tokens
  that have already moved the way A pulls, as the paper's algorithm 1; "all": of all, as AReaL.  Equal values
  stay or go together, so that the order of rows is nothing.
  """
  if scope not in ("harmful", "all"):
    raise ValueError(f"config.objective.batch_veto: scope = '{scope}'; it is 'harmful' or 'all'.")
  on = batch.mask > 0
  log_ratio = jnp.where(on, logp - batch.old_logp, 0.0)
  pool = on & (log_ratio * jnp.sign(batch.advantage) > 0) if scope == "harmful" else on
  return ~pool | stats.smallest_with_mean(log_ratio**2, pool, tau)
