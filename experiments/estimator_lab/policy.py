"""A tabular policy whose responses can all be listed, with its exact rewards, gradients and divergences.

N responses of at most T tokens, S prefixes that a token can follow, V tokens of which 0 is EOS.
A policy is logits [S, V]; numpy, float64.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from grpojax.types import Turns

Logits = np.ndarray  # [S, V] float64


class World(NamedTuple):
  """One prompt: every response there is, and its reward."""

  state: np.ndarray  # [N, T] int, the prefix that a token follows; 0 behind the mask
  token: np.ndarray  # [N, T] int; 0 behind the mask
  mask: np.ndarray  # [N, T] float64: 1 on tokens, EOS included
  ended: np.ndarray  # [N] bool: False where the budget cut the response
  reward: np.ndarray  # [N] float64
  shape: tuple[int, int]  # S, V
  turns: Turns | None = None  # [N, ...]; None: a response is one turn


def tree(V: int, T: int, reward: Callable[[tuple[int, ...]], float]) -> World:
  """Returns all responses of at most T tokens over V tokens; `reward` sees a response, EOS included."""
  prefixes = [()]
  for prefix in prefixes:
    if len(prefix) < T - 1:
      prefixes += [(*prefix, token) for token in range(1, V)]
  index = {prefix: i for i, prefix in enumerate(prefixes)}
  cut = [(*p, token) for p in prefixes if len(p) == T - 1 for token in range(1, V)]
  responses = [(*p, 0) for p in prefixes] + cut
  state, token, mask = (np.zeros((len(responses), T), kind) for kind in (int, int, float))
  for n, response in enumerate(responses):
    state[n, : len(response)] = [index[response[:t]] for t in range(len(response))]
    token[n, : len(response)] = response
    mask[n, : len(response)] = 1
  ended = np.array([response[-1] == 0 for response in responses])
  rewards = np.array([reward(response) for response in responses], float)
  return World(state, token, mask, ended, rewards, (len(prefixes), V))


def odd_sum(response: tuple[int, ...]) -> float:
  """Returns 1 if the response ended and its tokens have an odd sum: every position matters."""
  return float(response[-1] == 0 and sum(response) % 2 == 1)


def even_length(response: tuple[int, ...]) -> float:
  """Returns 1 if the response ended after an even number of tokens."""
  return float(response[-1] == 0 and len(response) % 2 == 0)


def first_token(response: tuple[int, ...]) -> float:
  """Returns 1 if the first token is 1, however long the response is."""
  return float(response[0] == 1)


def random_policy(world: World, seed: int, scale: float = 1.0) -> Logits:
  """Draws logits from a normal distribution with deviation `scale`."""
  return np.random.default_rng(seed).normal(0.0, scale, world.shape)


def counting(T: int, seed: int) -> tuple[World, Logits]:
  """Returns a world of long responses: two tokens, so that only length varies, about T / 2 at the mean."""
  world = tree(2, T, even_length)
  theta = random_policy(world, seed, 0.3)
  theta[:, 0] -= np.log(T / 2)
  return world, theta


def log_policy(theta: Logits) -> np.ndarray:
  """Returns log π(token | prefix), [S, V]."""
  theta = theta - theta.max(-1, keepdims=True)
  return theta - np.log(np.exp(theta).sum(-1, keepdims=True))


def logp(world: World, theta: Logits) -> np.ndarray:
  """Returns log π of each token of each response, [N, T]; 0 behind the mask."""
  return log_policy(theta)[world.state, world.token] * world.mask


def probability(world: World, theta: Logits) -> np.ndarray:
  """Returns π(response), [N]."""
  return np.exp(logp(world, theta).sum(-1))


def expected_reward(world: World, theta: Logits) -> float:
  """Returns J(θ) = Σ π R."""
  return float(probability(world, theta) @ world.reward)


def true_gradient(world: World, theta: Logits) -> Logits:
  """Returns ∇ J(θ), [S, V]."""
  return score_sum(world, theta, probability(world, theta) * world.reward)


def score_sum(world: World, theta: Logits, factor: np.ndarray) -> Logits:
  """Returns Σ_n factor_n ∇ log π(response n) for factor [N], or that of each token for [N, T]."""
  slope = (factor if factor.ndim == 2 else factor[:, None]) * world.mask
  pairs = world.state * world.shape[1] + world.token
  summed = np.bincount(pairs.ravel(), slope.ravel(), np.prod(world.shape))
  return to_logits(theta, summed.reshape(world.shape))


def to_logits(theta: Logits, slope: np.ndarray) -> np.ndarray:
  """Returns Σ slope(s, a) ∇ log π(a | s): derivatives by log-probs -> by logits, [..., S, V] both."""
  return slope - np.exp(log_policy(theta)) * slope.sum(-1, keepdims=True)


def visits(world: World, theta: Logits) -> np.ndarray:
  """Returns the probability that a response passes each prefix, [S, 1]."""
  passed = probability(world, theta)[:, None] * world.mask
  return np.bincount(world.state.ravel(), passed.ravel(), world.shape[0])[:, None]


def kl_gradients(world: World, theta: Logits, ref: Logits) -> dict[str, Logits]:
  """Returns exact ∇_θ of four divergences; "token" ones hold the visited prefixes fixed."""
  log_pi, log_ref = log_policy(theta), log_policy(ref)
  difference = (logp(world, theta) - logp(world, ref)).sum(-1)
  seen = visits(world, theta)
  return {
    "sequence KL(θ‖ref)": score_sum(world, theta, probability(world, theta) * difference),
    "sequence KL(ref‖θ)": score_sum(world, theta, -probability(world, ref)),
    "token KL(θ‖ref)": to_logits(theta, seen * np.exp(log_pi) * (log_pi - log_ref)),
    "token KL(ref‖θ)": to_logits(theta, -seen * np.exp(log_ref)),
  }
