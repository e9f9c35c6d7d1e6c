"""What does a pair of completions of one prompt cost?  Pair -> cost [], with gradient by `pair.policy`.

The pair is the first best over the first worst completion of a group; a group without contrast has none.  The
loss is coef times the mean over pairs.  s is Σ_t (log π_θ − log π_ref) of a completion, n its tokens, w the
chosen one and l the other.  It needs log π_θ of whole groups: a forward pass an update, as `batch_veto`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from grpojax.objective.fields import missing
from grpojax.types import Array


class Pair(NamedTuple):
  """The chosen completion of a group, then the rejected one."""

  policy: Array  # [2] Σ_t log π_θ
  reference: Array | None  # [2] Σ_t log π_ref; None without a reference
  length: Array  # [2] tokens


def dpo(pair: Pair, *, beta=0.1, smoothing=0.0) -> Array:
  """−log σ(β (s_w − s_l)).  DPO, https://arxiv.org/abs/2305.18290; beta as TRL's online DPO

  smoothing ε: −(1 − ε) log σ(β (s_w − s_l)) − ε log σ(−β (s_w − s_l)), for labels that are wrong so often.
  SPIN, https://arxiv.org/abs/2401.01335, is the same of a demonstration over the policy's own answer.
  """
  chosen, rejected = _against_reference(pair)
  gap = beta * (chosen - rejected)
  return -(1 - smoothing) * jax.nn.log_sigmoid(gap) - smoothing * jax.nn.log_sigmoid(-gap)


def ipo(pair: Pair, *, beta=0.1) -> Array:
  """(s_w / n_w − s_l / n_l − 1 / (2 β))².  IPO, https://arxiv.org/abs/2310.12036, by length as TRL has it"""
  chosen, rejected = _against_reference(pair) / jnp.maximum(pair.length, 1)
  return (chosen - rejected - 1 / (2 * beta)) ** 2


def simpo(pair: Pair, *, beta=2.0, gamma=0.5) -> Array:
  """−log σ(β (Σ log π_w / n_w − Σ log π_l / n_l) − γ): no reference.  SimPO, https://arxiv.org/abs/2405.14734"""
  chosen, rejected = pair.policy / jnp.maximum(pair.length, 1)
  return -jax.nn.log_sigmoid(beta * (chosen - rejected) - gamma)


def _against_reference(pair: Pair) -> Array:
  """Returns s [2]."""
  if pair.reference is None:
    raise missing("ref_logp")
  return pair.policy - pair.reference
