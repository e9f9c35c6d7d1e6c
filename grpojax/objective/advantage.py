"""R -> A inside one group.  `group` is a Batch without its prompt axis: reward [G], mask [G, T].

Returns [G], or [G, T] where the tokens of a completion differ.  Rows that are not `valid` leave
mean and deviation and get A = 0.  A group without contrast (max R = min R, so also a group of one)
gets exactly 0, decided by max − min: in float32, (R − mean) / (std + eps) of equal rewards is not.
"""

import jax.numpy as jnp

from grpojax.batch import Array, Batch
from grpojax.objective import stats


def raw(group: Batch) -> Array:
  """A = R.  No baseline: SFT with R = 1, or what a `rescale` over the batch starts from."""
  return group.reward


def center(group: Batch) -> Array:
  """R − mean.  Dr. GRPO, https://arxiv.org/abs/2503.20783"""
  return _if_contrast(group, _centered(group))


def zscore(group: Batch, *, eps=1e-6, ddof=1) -> Array:
  """(R − mean) / (std + eps).  GRPO, https://arxiv.org/abs/2402.03300, ddof and eps as verl."""
  return _if_contrast(group, _centered(group) / (_std(group, ddof) + eps))


def leave_one_out(group: Batch) -> Array:
  """R − mean of the others = n / (n − 1) · (R − mean).  RLOO, https://arxiv.org/abs/2402.14740"""
  n = stats.total(1.0, group.valid)
  return _if_contrast(group, _centered(group) * n / jnp.maximum(n - 1, 1))


def _centered(group: Batch) -> Array:
  return jnp.where(group.valid, group.reward - stats.mean(group.reward, group.valid), 0.0)


def _std(group: Batch, ddof) -> Array:
  return stats.std(group.reward, group.valid, ddof=ddof)


def _if_contrast(group: Batch, advantage: Array) -> Array:
  return jnp.where(stats.spread(group.reward, group.valid) > 0, advantage, 0.0)
