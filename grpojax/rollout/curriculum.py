"""The success rate of every training prompt, kept between steps: baseline, curriculum, buckets.

A rate is successes / (successes + failures).  Under "ema" both are moving averages and sum to 1;
under "beta" they are SPO's discounted counts (https://arxiv.org/abs/2509.13232), whose discount is
measured on the prompt's last completions: they are kept too, 8 bytes per token.

Everything is float32 or int32 numpy, by the prompt's index in the training split, the same on every
process.  Nothing is changed in place.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from grpojax.types import Array

_LAST = 1e-20  # a weight beside which every other comes first


class Last(NamedTuple):
  """Completions that every prompt had when it was last seen.  G of them; length 0: never seen."""

  tokens: np.ndarray  # [rows, G, T] int32
  length: np.ndarray  # [rows, G] int32
  logp: np.ndarray  # [rows, G, T] float32, under the policy that sampled them


class Difficulty(NamedTuple):
  successes: np.ndarray  # [rows] float32
  failures: np.ndarray  # [rows] float32
  last: Last | None


class Outcomes(NamedTuple):
  """Results of the groups that were drawn, kept or not."""

  id: np.ndarray  # [D] int32, of the prompt
  right: np.ndarray  # [D] float32, sum of the accuracies of the valid completions
  count: np.ndarray  # [D] float32, valid completions


def start(config: ConfigDict, rows: int, group_size: int, max_tokens: int) -> Difficulty:
  """Returns half a success and half a failure for each prompt (Jeffreys' prior), nothing seen."""
  half = np.full(rows, 0.5, np.float32)
  shape = (rows, group_size, max_tokens)
  last = Last(np.zeros(shape, np.int32), np.zeros(shape[:2], np.int32), np.zeros(shape, np.float32))
  return Difficulty(half, half.copy(), last if config.kind == "beta" else None)


def rate(d: Difficulty) -> np.ndarray:
  """Returns the success rate of every prompt, [rows] float32 in 0..1."""
  return beta_mean(d.successes, d.failures)


def draw_weights(config: ConfigDict, d: Difficulty | None, mixture: np.ndarray | None) -> np.ndarray | None:
  """Returns [rows]: how often to draw each prompt, times what the mixture says; None: by epochs.

  Solved prompts come last, when no other is left for a batch; so what is known of them stays.
  """
  if not (d and (config.weighted or config.drop_solved)):
    return mixture
  p = rate(d)
  own = prompt_weight(p, floor=config.floor) if config.weighted else np.ones_like(p)
  own = np.where(solved(config, d), _LAST, own).astype(np.float32)
  return own if mixture is None else own * mixture


def solved(config: ConfigDict, d: Difficulty) -> np.ndarray:
  """Returns [rows] bool: prompts that are drawn no more (ScaleRL's no-positive-resampling)."""
  return (rate(d) >= config.drop_solved) & (config.drop_solved > 0)


def survey(d: Difficulty, rows, outcomes: Outcomes) -> Difficulty:
  """Returns the counts with what was sampled before training."""
  successes, failures = d.successes.copy(), d.failures.copy()
  np.add.at(successes, rows, outcomes.right)
  np.add.at(failures, rows, outcomes.count - outcomes.right)
  return d._replace(successes=successes, failures=failures)


def begin(config: ConfigDict, d: Difficulty) -> Difficulty:
  """Returns what training starts from: of the survey, rates for moving averages, counts for SPO's counts."""
  if config.kind == "beta":
    return d
  total = d.successes + d.failures
  return d._replace(successes=d.successes / total, failures=d.failures / total)


def update(config: ConfigDict, d: Difficulty, rows, outcomes: Outcomes, keep=None) -> Difficulty:
  """Returns the rates after a step that drew `rows` [D]; `keep` [D] discounts their past under "beta".

  Groups without a valid completion say nothing.  A prompt that was drawn twice is updated twice.
  """
  successes, failures = d.successes.copy(), d.failures.copy()
  for i in np.flatnonzero(outcomes.count):
    row, mean = rows[i], outcomes.right[i] / outcomes.count[i]
    if config.kind == "ema":
      how = dict(keep=np.float32(1 - config.rate), weight=np.float32(config.rate))
    else:
      how = dict(keep=keep[i], weight=outcomes.count[i])
    pair = beta_update(successes[row], failures[row], mean, **how)
    successes[row], failures[row] = pair
  return d._replace(successes=successes, failures=failures)


def keep(d: Difficulty, rows, logp: np.ndarray) -> np.ndarray:
  """Returns [D]: the discount of each prompt's past; 1 if the prompt was never seen.

  logp [D, G, T] is that of the last completions under the policy of now.
  """
  on = np.arange(logp.shape[-1]) < d.last.length[rows][..., None]
  tokens = on.sum((1, 2))
  moved = np.where(on, np.abs(logp - d.last.logp[rows]), 0).sum((1, 2)) / np.maximum(tokens, 1)
  return np.where(tokens > 0, np.asarray(beta_keep(moved)), 1).astype(np.float32)


def saw(d: Difficulty, rows, last: Last) -> Difficulty:
  """Returns the rates with this step's completions as the last ones of `rows`."""

  def put(old, new):
    old = old.copy()
    old[rows] = new
    return old

  return d._replace(last=Last(*map(put, d.last, last)))


def describe(config: ConfigDict, d: Difficulty) -> dict[str, float]:
  """Returns the shares of the training prompts by bucket; a prompt that was never drawn is learnable."""
  p = rate(d)
  hard, easy = (p < config.too_hard).mean(), (p > config.too_easy).mean()
  dropped = {"difficulty/dropped": float(solved(config, d).mean())} if config.drop_solved else {}
  return dropped | {
    "difficulty/mean": float(p.mean()),
    "difficulty/too_hard": float(hard),
    "difficulty/learnable": float(1 - hard - easy),
    "difficulty/too_easy": float(easy),
  }


def beta_mean(successes: Array, failures: Array) -> Array:
  """Returns a prompt's expected reward, successes / (successes + failures), the baseline of SPO."""
  return successes / (successes + failures)


def beta_update(successes: Array, failures: Array, reward: Array, *, keep, weight=1.0):
  """Returns (successes, failures) after a reward in 0..1, older ones discounted by `keep`.

  SPO, https://arxiv.org/abs/2509.13232: keep from `beta_keep`, a weight of 1 per completion.  With
  keep = 1 − rate and weight = rate it is a moving average.  Call it after its mean has been used.
  """
  return keep * successes + weight * reward, keep * failures + weight * (1 - reward)


def beta_keep(distance: Array) -> Array:
  """Returns the share of past counts to keep: 2^(−distance / 0.06) in 0.875..0.96.  SPO

  `distance` is the mean of |log π − log π'| since the prompt was last seen.
  """
  return jnp.clip(2.0 ** (-distance / 0.06), 0.875, 0.96)


def prompt_weight(success_rate: Array, *, floor=0.05) -> Array:
  """Returns sqrt(p (1 − p)) + floor: how often to draw a prompt; never 0, so it can come back.  SPO"""
  return (success_rate * (1 - success_rate)) ** 0.5 + floor
