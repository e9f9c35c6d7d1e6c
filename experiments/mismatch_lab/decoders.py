"""Tiny decoders of this project that write answers of at most T tokens, and their tables of log-probs.

A table [S, V] has log π(token | prefix) of every prefix.  The learner's comes from its own pass over whole
sequences, with the derivative of every entry by the decoder's D parameters; the sampler's from prefill and
decoding with a cache, token by token.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.estimator_lab import policy
from experiments.mismatch_lab.size import STAGES, Size
from grpojax import models
from grpojax.learner import logprobs
from grpojax.models import by_rows, int8
from grpojax.recipes import base
from grpojax.rollout.sampler.token_sampling import SamplingParams, filtered, kept_tokens

V, T, L = 4, 4, 8
WORLD = policy.tree(V, T, policy.odd_sum)
N, S = len(WORLD.reward), WORLD.shape[0]
RATE = 3e-3  # of Adam, which climbs the exact expected reward
NEVER = -1e4  # log-prob of what is never sampled
RAW = SamplingParams()


class Reading(NamedTuple):
  """The tokens that a pass reads before an answer, and how."""

  prompt: tuple[int, ...]
  padding: bool = False  # is attended to, in the L columns


class Learner(NamedTuple):
  """Log-probs and gradients that the learner computes of the answers."""

  table: np.ndarray  # [S, V] float64, log-probs
  slope: np.ndarray  # [S, V, D], their derivatives by the parameters


class Sampler(NamedTuple):
  """Probabilities by which the sampler draws the answers, and those that it records."""

  table: np.ndarray  # [S, V] float64, log-probs
  routing: np.ndarray | None  # [N, L + T - 1, layers, k] of a mixture, -1 on padding
  kept: np.ndarray | None  # [N, T, K] int32 where truncation keeps at most K tokens


READ = Reading((1, 3, 1, 2, 2))


@functools.cache
def model(experts: int) -> models.Model:
  """Returns a decoder of two layers, with a mixture of `experts` if there are any."""
  c = base.get_config("tiny").model
  c.update(hidden_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=8, intermediate_size=32)
  c.update(num_experts=experts, num_experts_per_tok=2, moe_intermediate_size=16)
  return models.build(c, V)


@functools.cache
def trained(experts: int, number: int, size: Size) -> dict:
  """Returns parameters whose exact expected reward is at the stage of policy `number`."""
  share = float(np.linspace(*STAGES, size.policies)[number])
  params, tx = model(experts).init(jax.random.key(number)), optax.adam(RATE)
  state = tx.init(params)
  while True:
    after, state, reward = _climb(experts, params, state)
    if reward >= share:
      return params
    params = after


@functools.partial(jax.jit, static_argnums=0)
def _climb(experts: int, params, state):
  loss, slope = jax.value_and_grad(lambda p: -expected_reward(experts, p))(params)
  updates, state = optax.adam(RATE).update(slope, state)
  return optax.apply_updates(params, updates), state, -loss


def expected_reward(experts: int, params) -> jax.Array:
  """Returns J = Σ π R."""
  logp = jnp.where(WORLD.mask > 0, answers(experts, params), 0.0)
  return jnp.exp(logp.sum(-1)) @ jnp.asarray(WORLD.reward, jnp.float32)


def answers(experts: int, params, read: Reading = READ, routing=None, kept=None) -> jax.Array:
  """Returns the learner's log-probs [N, T] of all answers; garbage behind their ends."""
  tokens, length = _rows(read)
  one = lambda x: None if x is None else x[None]
  logp, *_ = logprobs.response_logprobs(
    model(experts).bind(params), tokens[None], length[None], T, one(routing), kept=one(kept),
    temperature=1.0, chunk=T,
  )  # fmt: skip
  return logp[0]


def learner(experts: int, params, read: Reading = READ, routing=None, kept=None) -> Learner:
  """Returns the learner's table, over kept sets and with a replayed routing where these are given."""
  table, slope = (np.asarray(x, float) for x in _learner(experts, read, params, routing, kept))
  never = table < NEVER
  return Learner(np.where(never, NEVER, table), np.where(never[..., None], 0.0, slope))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _learner(experts: int, read: Reading, params, routing, kept):
  at = _first_of_each()
  found, back = jax.vjp(lambda params: answers(experts, params, read, routing, kept)[at], params)
  slopes = jax.lax.map(lambda one: back(one)[0], jnp.eye(S * V))  # not vmap, which here is wrong
  slopes = [x.reshape(S, V, -1) for x in jax.tree.leaves(slopes)]
  return found.reshape(S, V), jnp.concatenate(slopes, -1)


def sampler(
  experts: int, params, read: Reading = READ, *, kv_cache="full", head="float32", sampling=RAW
) -> Sampler:
  """Returns the sampler's table; `params` may have matrices in int8."""
  found = _sampler(experts, read, kv_cache, head, sampling, params)
  logp, kept, routing = jax.tree.map(np.asarray, found)
  table = np.full((S, V), NEVER)
  table[WORLD.state[WORLD.mask > 0]] = np.maximum(logp[WORLD.mask > 0], NEVER)
  if routing is not None:
    real = np.arange(L + T - 1) >= L - len(read.prompt)
    routing = np.where(real[None, :, None, None], routing, -1)
  return Sampler(table, routing, kept)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _sampler(experts: int, read: Reading, kv_cache: str, head: str, sampling: SamplingParams, params):
  """Returns log-probs [N, T, V] behind every prefix of every answer, kept sets and routing."""
  decoder, (tokens, length) = model(experts).bind(params), _rows(read)
  first = jnp.zeros(N, jnp.int32) if read.padding else L - length
  layers, unembedding = decoder.unstacked_layers(), decoder.unembedding().astype(head)
  hidden, cache, routed = decoder.prefill(tokens[:, :L], first, L + T)
  cache = int8.quantize_cache(cache) if kv_cache == "int8" else cache
  logits, choices = [], [routed]
  for t in range(T):
    if t:
      hidden, cache, routed = decoder.decode(layers, tokens[:, L + t - 1], L + t - 1, first, cache)
      choices.append(routed)
    logits.append(models.logits(hidden.astype(head), unembedding))
  logits = jnp.stack(logits, 1).reshape(N * T, V)
  logp = jax.nn.log_softmax(filtered(logits, sampling)).reshape(N, T, V)
  kept = kept_tokens(logits, sampling).reshape(N, T, -1) if sampling.top_k else None
  if not experts:
    return logp, kept, None
  return logp, kept, jnp.concatenate([by_rows(r.experts, decoder.spec) for r in choices], 1)


def _rows(read: Reading) -> tuple[np.ndarray, np.ndarray]:
  """Returns every answer behind the left-padded prompt [N, L + T] int32, and the prompts' lengths [N]."""
  row = np.array((0,) * (L - len(read.prompt)) + read.prompt)
  tokens = np.concatenate([np.tile(row, (N, 1)), WORLD.token], 1).astype(np.int32)
  return tokens, np.full(N, len(read.prompt), np.int32)


def _first_of_each() -> tuple[np.ndarray, np.ndarray]:
  """Returns an answer and a position at which each token follows each prefix, [S * V] both."""
  where = {}
  for n, t in zip(*np.nonzero(WORLD.mask), strict=True):
    where.setdefault(WORLD.state[n, t] * V + WORLD.token[n, t], (n, t))
  return tuple(np.array([where[cell] for cell in range(S * V)]).T)
