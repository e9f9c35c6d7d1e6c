"""What is a token's share of the loss?  A Batch, its mask [P, G, T] first of all -> weight [P, G, T].

Every aggregation of this literature is linear in the per-token losses, so it is a weight matrix.
It is made once, on the mask of the whole optimiser batch, before that is cut into microbatches:
accumulation is then addition, and exact.  n_b are a row's tokens, n_bu
those of a turn, N those of the batch.
"""

import jax.numpy as jnp

from grpojax.objective import credit
from grpojax.types import Array, Batch


def token_mean(batch: Batch) -> Array:
  """1 / N: every token the same.  DAPO as verl, TRL and slime run it, https://arxiv.org/abs/2503.14476"""
  return batch.mask / jnp.maximum(batch.mask.sum(), 1)


def sequence_mean(batch: Batch, *, rows="nonempty") -> Array:
  """1 / (n_b · rows): every completion the same.  GRPO, https://arxiv.org/abs/2402.03300

  rows: "nonempty" counts completions with a token (verl, tunix), "all" every valid one (TRL).
  """
  return batch.mask / jnp.maximum(batch.mask.sum(-1, keepdims=True), 1) / _count(batch, rows)


def sequence_sum(batch: Batch, *, rows="nonempty") -> Array:
  """1 / rows: log-probs add up to the completion's.  RLOO, https://arxiv.org/abs/2402.14740"""
  return batch.mask / _count(batch, rows)


def constant(batch: Batch, *, budget) -> Array:
  """1 / (B · budget): a token's weight depends on no length.  Dr. GRPO, https://arxiv.org/abs/2503.20783

  B counts every valid row, also those `select` emptied; budget [tokens] is fixed for the whole run.
  """
  return batch.mask / jnp.maximum(batch.valid.sum() * budget, 1)


def prompt_mean(batch: Batch, *, prompts="nonempty") -> Array:
  """1 / (tokens of the prompt's group · prompts): DAPO's formula taken literally, eq. 8; ScaleRL

  https://arxiv.org/abs/2510.13786.  prompts: "nonempty" counts those with a token, "all" (SkyRL) those with a
  valid completion.
  """
  counted = dict(nonempty=batch.mask.sum((1, 2)) > 0, all=batch.valid.any(1))
  if prompts not in counted:
    raise ValueError(f"config.objective.aggregate.prompts = '{prompts}'; it is 'nonempty' or 'all'.")
  return prompt_sum(batch) / jnp.maximum(counted[prompts].sum(), 1)


def prompt_sum(batch: Batch) -> Array:
  """1 / tokens of the prompt's group: P times `prompt_mean`, as TRL's ScaleRL, whose step grows with P."""
  return batch.mask / jnp.maximum(batch.mask.sum((1, 2), keepdims=True), 1)


def turn_mean(batch: Batch) -> Array:
  """1 / (n_bu · turns): every turn the same, what "sequence mean" is where a row is a turn."""
  tokens = credit.tokens_of_turns(batch)
  return credit.per_token(1 / jnp.maximum(tokens, 1), batch) / jnp.maximum((tokens > 0).sum(), 1)


def trajectory_turn_mean(batch: Batch) -> Array:
  """1 / (n_bu · turns of the trajectory · trajectories): every trajectory the same, and every turn in it."""
  tokens = credit.tokens_of_turns(batch)
  turns = (tokens > 0).sum(-1, keepdims=True)
  share = 1 / jnp.maximum(tokens, 1) / jnp.maximum(turns, 1)
  return credit.per_token(share, batch) / jnp.maximum((turns > 0).sum(), 1)


def _count(batch: Batch, rows: str) -> Array:
  counted = dict(nonempty=batch.mask.sum(-1) > 0, all=batch.valid)
  if rows not in counted:
    raise ValueError(f"config.objective.aggregate.rows = '{rows}'; it is 'nonempty' or 'all'.")
  return jnp.maximum(counted[rows].sum(), 1)
