"""Defines the records that flow, one way: Prompts -> Rollout -> Scored -> Groups -> Batch.

Letters used everywhere:
  P  prompts in the batch          G  completions of one prompt       B = P * G rows
  T  response budget, in tokens    L  prompt budget, in tokens        V  vocabulary
  U  turns of a trajectory, at most

Lengths and masks are explicit: nothing is ever inferred by comparing with a pad id.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

Array = jax.Array | np.ndarray

# Kinds of tokens, int8.  The loss is over those that the policy chose: mask = kind == ACTION.
PROMPT, ACTION, OBSERVATION, INJECTED, PADDING = range(5)

# Why a trajectory ended, int8: the task was over, or a limit of the environment was; config.env.turns,
# config.rollout.max_tokens or config.env.invalid_actions was reached; the environment failed: no reward.
ENDINGS = ("done", "truncated", "turns", "tokens", "invalid", "failed")
DONE, TRUNCATED, TURNS, TOKENS, INVALID, FAILED = range(6)


class Prompts(NamedTuple):
  """Questions, as tokens for the sampler and as rows of the dataset for the rewards."""

  tokens: Array  # [P, L] int32, left-padded: the last `length` columns are the prompt
  length: Array  # [P] int32
  id: Array  # [P] int32, stable: the row of the dataset, whatever the order of reading
  example: list[dict]  # P rows of the dataset, host side only


class Turns(NamedTuple):
  """Turns of trajectories.  A row is a whole trajectory, of U turns at most; a turn is one action."""

  index: Array  # [P, G, T] int32: the turn of each action token; -1 on every other
  count: Array  # [P, G] int32, turns that were played; what is beyond means nothing
  reward: Array  # [P, G, U] float32, what the environment gave for the turn
  anchor: Array  # [P, G, U] int32: turns of a prompt that met the same situation have the same number
  invalid: Array  # [P, G, U] bool: the action could not be read, or was against the rules


class Rollout(NamedTuple):
  """Sampled responses and their log-probs, grouped by prompt."""

  tokens: Array  # [P, G, T] int32, right-padded; an EOS that was sampled is part of the response
  length: Array  # [P, G] int32, in tokens, EOS included
  ended: Array  # [P, G] bool: an EOS was sampled; False means that the budget cut it
  sampler_logp: Array  # [P, G, T] float32: log-probs under the sampling distribution
  sampler_entropy: Array  # [P, G, T] float32, nats: of the sampling distribution, for people to look at
  routing: Array | None = None  # [P, G, L + T - 1, layers, k] int8/16: experts of what was fed; -1: none
  kind: Array | None = None  # [P, G, T] int8, of the response's tokens; None: all of `length` are actions
  version: Array | None = None  # [P, G, T] int32, training steps behind the policy that chose the token
  context: Array | None = None  # [P, G, T] int32: a token saw the prompt, and those before it of its number;
  # None: all before it
  turns: Turns | None = None  # None: all of a response is one turn
  ending: Array | None = None  # [P, G] int8: DONE, TRUNCATED, ...; None where there are no environments
  kept: Array | None = None  # [P, G, T, K] int32: the tokens that truncation kept, of which the token was
  # drawn, and -1 behind them; all -1: of the whole vocabulary.  None: so are all


class Scored(NamedTuple):
  """Rewards of a rollout.  Host side, numpy."""

  reward: Array  # [P, G] float32, the sum that is trained on; 0 where not valid
  accuracy: Array  # [P, G] float32, the task's own 0/1, untouched by shaping; NaN: not asked
  valid: Array  # [P, G] bool: False where a reward raised, abstained or was not finite
  parts: dict[str, Array]  # name of the reward -> [P, G] float32; NaN: not asked
  extra: dict[str, Array]  # what joins Batch.extra: step scores, statistics of a pool; [P, G, ...]


class Groups(NamedTuple):
  """P scored groups on this host, numpy throughout."""

  prompts: Prompts
  rollout: Rollout
  scored: Scored


class Batch(NamedTuple):
  """One optimiser batch, as the objective and the learner read it.

  Every array starts with [P, G]; `jax.vmap` over the first axis shows a function one group.  Fields
  that a run does not need are None.
  """

  mask: Array  # [P, G, T] float32: 1 on tokens that the policy sampled (ACTION), EOS included; else 0
  reward: Array  # [P, G] float32
  accuracy: Array  # [P, G] float32
  valid: Array  # [P, G] bool: False rows have no reward (or only fill the shape) and count nowhere
  ended: Array  # [P, G] bool
  sampler_logp: Array | None = None  # [P, G, T] float32, log mu
  old_logp: Array | None = None  # [P, G, T] float32, log pi_old, recomputed by the learner
  on_policy: Array | None = None  # [P, G] bool: old_logp is still unknown, and that of the update's own pass
  ref_logp: Array | None = None  # [P, G, T] float32, log pi_ref
  teacher_logp: Array | None = None  # [P, G, T] float32, log pi_T
  divergence: Array | None = None  # [P, G, T] float32 of pi from pi_T, with gradient; by the update
  entropy: Array | None = None  # [P, G, T] float32, nats, of pi_old over the vocabulary or `kept`
  tokens: Array | None = None  # [P, G, L + T] int32: left-padded prompt, then the response
  prompt_length: Array | None = None  # [P, G] int32
  length: Array | None = None  # [P, G] int32, tokens of the response, of all kinds; mask.sum(-1) may be less
  context: Array | None = None  # [P, G, T] int32: Rollout.context
  kept: Array | None = None  # [P, G, T, K] int32: Rollout.kept; all log-probs are over the same tokens
  packing_index: Array | None = None  # [P, G, 4] int32, where it lies in packed rows: packing.pack_sequences
  routing: Array | None = None  # [P, G, L + T - 1, layers, k] int8/16, experts to replay; -1: none
  balance_mask: Array | None = None  # [P, G, L + T - 1] bool, tokens that the load-balance loss counts
  expert_cost: Array | None = None  # [P, G, E] float32, load_balance_loss per probability, in all rows
  turns: Turns | None = None  # None: a completion is one turn, and `reward` is that turn's
  extra: dict[str, Any] | None = None  # what single estimators need: step scores, baselines, ...
  advantage: Array | None = None  # [P, G, T] float32, filled by objective.prepare
  weight: Array | None = None  # [P, G, T] float32, share of the loss; filled by objective.prepare
  token_mean_weight: Array | None = None  # [P, G, T] float32, share of a mean over tokens; filled by prepare
  is_weight: Array | None = None  # [P, G, T] float32, mismatch weight; by prepare if any is configured
  num_tokens: Array | None = None  # [P, G] float32, tokens before `select`; filled by prepare
  prox_share: Array | None = None  # [P, G, T] float32: log pi_old is so far from log mu to log pi; by prepare
  component_weight: tuple | None = None  # [P, G, T] float32 of each component of the objective; by prepare
  preference: tuple | None = None  # objective.terms.Tangent of each preference of the objective; by prepare
