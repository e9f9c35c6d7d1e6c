"""Adaptive group sizes: a prompt is sampled, round by round, until it has said enough.

Reinforce-Ada, https://arxiv.org/abs/2510.04996.  Groups are ragged while they grow (a prompt has
1..rounds times G completions); mean and deviation are those of all of them, kept or not, by sums over
the prompt's segment.  Then G are kept, half of them successes where there are that many, so that the
update keeps its shape.
"""

from collections.abc import Callable

import jax
import numpy as np
from ml_collections import ConfigDict

from grpojax.rollout.groups import concatenate, lengths_of, outcomes_of, take
from grpojax.rollout.metrics import accuracy, contrast, describe_drawn
from grpojax.runtime.data_shards import SINGLE_PROCESS, ProcessShards
from grpojax.types import Groups, Prompts

STOPS = ("balanced", "positive_focused")


def collect(
  config: ConfigDict,
  prompts: Prompts,
  generate: Callable[[Prompts, int], Groups],
  shards: ProcessShards = SINGLE_PROCESS,
):
  """Collective: groups, outcomes and metrics as `dynamic_sampling.collect`; `scored.extra` has the pool's.

  "balanced" wants G / 2 successes and G / 2 failures of each prompt, "positive_focused" one success.
  """
  P = len(prompts.id)
  active, drawn, who, tokens, filler = np.arange(P), [], [], 0, 0
  for number in range(config.rounds):
    # The sampler's shape is fixed: rows that are over repeat an active prompt and are not looked at.
    rows = np.resize(active if active.size else np.arange(P), P)
    groups = generate(take(Groups(prompts, None, None), rows).prompts, number)
    tokens += int(lengths_of([groups]).sum())
    filler += int(lengths_of([groups])[len(active) :].sum())
    drawn.append(take(groups, np.arange(len(active))))
    who.append(active)
    pool, prompt = concatenate(drawn), np.concatenate(who)
    enough = _enough(config, pool.scored, prompt, P)
    active = active[~enough[active]]
    if not shards.sum(active.size):
      break
  outcomes = shards.gather_unequal(outcomes_of([pool]))
  metrics = contrast(outcomes) | describe_drawn(pool, shards) | {
    "num_tokens": shards.sum(tokens),
    "adaptive_group/rounds": number + 1,
    "adaptive_group/size": shards.sum(pool.rollout.length.size) / shards.sum(P),
    "adaptive_group/enough": 1 - shards.sum(active.size) / shards.sum(P),
    "adaptive_group/filler_tokens": shards.sum(filler),
    "adaptive_group/accuracy": accuracy(outcomes),
  }
  return _keep(config, prompts, pool, prompt), outcomes, metrics


def _enough(config: ConfigDict, scored, prompt: np.ndarray, P: int) -> np.ndarray:
  """Returns [P] bool: which prompts need no further round."""
  success = scored.valid & (scored.reward > config.positive)
  wins = np.bincount(prompt, success.sum(1), P)
  if config.stop == "positive_focused":
    return wins >= 1
  losses = np.bincount(prompt, (scored.valid & ~success).sum(1), P)
  half = scored.reward.shape[1] / 2
  return (wins >= half) & (losses >= half)


def _keep(config: ConfigDict, prompts: Prompts, pool: Groups, prompt: np.ndarray) -> Groups:
  """Returns G completions of each prompt's pool, with the pool's mean and deviation (ddof 1) beside them."""
  P, G = len(prompts.id), pool.scored.reward.shape[1]
  who, reward, valid = np.repeat(prompt, G), pool.scored.reward.ravel(), pool.scored.valid.ravel()
  total = lambda x: np.bincount(who, np.where(valid, x, 0), P)
  count = total(np.ones_like(reward))
  mean = total(reward) / np.maximum(count, 1)
  std = np.sqrt(total((reward - mean[who]) ** 2) / np.maximum(count - 1, 1))

  chosen = np.stack([_choose(np.flatnonzero(who == p), valid, reward > config.positive, G) for p in range(P)])
  flat = lambda x: x.reshape(-1, *x.shape[2:])[chosen]
  scored = pool.scored
  spread = lambda x: np.repeat(x[:, None], G, 1).astype(np.float32)
  scored = scored._replace(
    reward=flat(scored.reward),
    accuracy=flat(scored.accuracy),
    valid=flat(scored.valid),
    parts={name: flat(x) for name, x in scored.parts.items()},
    extra={name: flat(x) for name, x in scored.extra.items()}
    | dict(pool_mean=spread(mean), pool_std=spread(std)),
  )
  return Groups(prompts, jax.tree.map(flat, pool.rollout), scored)


def _choose(mine: np.ndarray, valid: np.ndarray, success: np.ndarray, G: int) -> np.ndarray:
  """Returns the G of a prompt's completions `mine` that are kept, in order of arrival; valid ones first."""
  good, bad = mine[valid[mine] & success[mine]], mine[valid[mine] & ~success[mine]]
  wins = min(len(good), max(G // 2, G - len(bad)))
  return np.concatenate([good[:wins], bad[: G - wins], mine[~valid[mine]]])[:G]
