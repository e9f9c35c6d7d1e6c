"""What is a token's share of the loss?  mask [P, G, T], valid [P, G] -> weight [P, G, T].

Every aggregation of this literature is linear in the per-token losses, so it is a weight matrix.
It is made once, on the mask of the whole optimiser batch, before that is cut into microbatches:
accumulation is then addition, and exact.  n_b are a row's tokens, N those of the batch.
"""

import jax.numpy as jnp

from grpojax.types import Array


def token_mean(mask: Array, valid: Array) -> Array:
  """1 / N: every token the same.  DAPO as verl, TRL and slime run it, https://arxiv.org/abs/2503.14476"""
  return mask / jnp.maximum(mask.sum(), 1)


def sequence_mean(mask: Array, valid: Array, *, rows="nonempty") -> Array:
  """1 / (n_b · rows): every completion the same.  GRPO, https://arxiv.org/abs/2402.03300

  rows: "nonempty" counts completions with a token (verl, tunix), "all" every valid one (TRL).
  """
  return mask / jnp.maximum(mask.sum(-1, keepdims=True), 1) / _count(mask, valid, rows)


def sequence_sum(mask: Array, valid: Array, *, rows="nonempty") -> Array:
  """1 / rows: log-probs add up to the completion's.  RLOO, https://arxiv.org/abs/2402.14740"""
  return mask / _count(mask, valid, rows)


def constant(mask: Array, valid: Array, *, budget) -> Array:
  """1 / (B · budget): a token's weight depends on no length.  Dr. GRPO, https://arxiv.org/abs/2503.20783

  B counts every valid row, also those `select` emptied; budget [tokens] is fixed for the whole run.
  """
  return mask / jnp.maximum(valid.sum() * budget, 1)


def prompt_mean(mask: Array, valid: Array, *, prompts="nonempty") -> Array:
  """1 / (tokens of the prompt's group · prompts): DAPO's formula taken literally, eq. 8; ScaleRL

  https://arxiv.org/abs/2510.13786.  prompts: "nonempty" counts those with a token, "all" (SkyRL) those with a
  valid completion.
  """
  counted = dict(nonempty=mask.sum((1, 2)) > 0, all=valid.any(1))
  if prompts not in counted:
    raise ValueError(f"config.objective.aggregate.prompts = '{prompts}'; it is 'nonempty' or 'all'.")
  return prompt_sum(mask, valid) / jnp.maximum(counted[prompts].sum(), 1)


def prompt_sum(mask: Array, valid: Array) -> Array:
  """1 / tokens of the prompt's group: P times `prompt_mean`, as TRL's ScaleRL, whose step grows with P."""
  return mask / jnp.maximum(mask.sum((1, 2), keepdims=True), 1)


def _count(mask: Array, valid: Array, rows: str) -> Array:
  counted = dict(nonempty=mask.sum(-1) > 0, all=valid)
  if rows not in counted:
    raise ValueError(f"config.objective.aggregate.rows = '{rows}'; it is 'nonempty' or 'all'.")
  return jnp.maximum(counted[rows].sum(), 1)
