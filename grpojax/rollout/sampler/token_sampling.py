"""Which token comes next?  Logits -> a token, its log-prob and the entropy of what it was drawn from.

Filters act in the order of Hugging Face's: temperature, top-k, top-p, min-p.  Each draw is keyed by
what it is for, never by the batch slot: (seed and step, prompt id, sample index, position).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

_BLOCK = 256  # tokens of the vocabulary


class SamplingParams(NamedTuple):
  """Rule by which a token is sampled from its logits.  Static: other values are another program."""

  temperature: float = 1.0  # 0: greedy
  top_k: int = 0  # 0: off
  top_p: float = 1.0
  min_p: float = 0.0  # relative to the likeliest token


def row_keys(key, prompt_id, group_size: int):
  """Returns one key for each (prompt, sample), [P * G], of a key and prompt_id [P]."""
  return sample_keys(jax.vmap(lambda i: jax.random.fold_in(key, i))(prompt_id), group_size).reshape(-1)


def sample_keys(prompt_key, group_size: int):
  """Returns one key for each of a prompt's samples, [P, G], of prompt_key [P]."""
  return jax.vmap(lambda k: jax.vmap(lambda g: jax.random.fold_in(k, g))(jnp.arange(group_size)))(prompt_key)


def filtered(logits, sampling: SamplingParams):
  """Returns the logits [B, V] float32 of the sampling distribution, -inf where a filter cut."""
  logits = logits / sampling.temperature
  keep = jnp.ones(logits.shape, bool)
  if sampling.top_k:
    keep = _likeliest(logits, sampling.top_k)
  if sampling.top_p < 1.0:
    keep &= _nucleus(jnp.where(keep, logits, -jnp.inf), sampling.top_p)
  if sampling.min_p:
    probs = jax.nn.softmax(jnp.where(keep, logits, -jnp.inf), axis=-1)
    floor = sampling.min_p * jnp.max(probs, axis=-1, keepdims=True)
    keep &= probs >= jnp.broadcast_to(floor, probs.shape)
  return jnp.where(keep, logits, -jnp.inf)


def kept_tokens(logits, sampling: SamplingParams):
  """Returns the tokens [B, k] int32 that the filters keep, the likeliest first, with -1 behind them.

  k = top_k is their bound, which filters must have whose sets are recorded.
  """
  kept, tokens = jax.lax.top_k(filtered(logits, sampling), min(sampling.top_k, logits.shape[-1]))
  return jnp.where(jnp.isneginf(kept), -1, tokens).astype(jnp.int32)


def unkept(sampling: SamplingParams, vocabulary: int, *shape: int):
  """Returns `kept_tokens` [*shape, k] of no token yet."""
  return jnp.full((*shape, min(sampling.top_k, vocabulary)), -1, jnp.int32)


def _likeliest(logits, k: int):
  """Keeps k tokens [B, V], of equally likely ones the first: never more, so that k is a bound."""
  tokens = jax.lax.top_k(logits, min(k, logits.shape[-1]))[1]
  return jnp.zeros(logits.shape, bool).at[jnp.arange(len(logits))[:, None], tokens].set(True)


def _nucleus(logits, top_p):
  """Keeps the fewest likeliest tokens whose mass reaches top_p; the likeliest always stays."""
  order = jnp.argsort(-logits, axis=-1)
  probs = jax.nn.softmax(jnp.take_along_axis(logits, order, axis=-1), axis=-1)
  before = jnp.cumsum(probs, axis=-1) - probs
  return jnp.take_along_axis(before < top_p, jnp.argsort(order, axis=-1), axis=-1)


def draw_by_blocks(keys, logits):
  """Draws tokens [B] by keys [B] from the softmax of logits [B, V]: a block of the vocabulary, a token of it.

  That takes two uniform numbers a token, each of 23 bits, and jax.random.categorical V of them: on a CPU a
  quarter of a decode step of SmolLM2-135M.  The distribution is the same, the tokens are not.
  """
  likely = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
  likely = jnp.pad(likely, ((0, 0), (0, -logits.shape[-1] % _BLOCK))).reshape(len(logits), -1, _BLOCK)
  uniform = jax.vmap(lambda key: jax.random.uniform(key, (2,)))(keys)
  block = _inverse(likely.sum(axis=-1), uniform[:, 0])
  of_block = jnp.take_along_axis(likely, block[:, None, None], axis=1)[:, 0]
  return block * _BLOCK + _inverse(of_block, uniform[:, 1])


def _inverse(weights, uniform):
  """Returns the place [B] where the sum of weights [B, n] passes `uniform` [B] of the whole, of weight > 0.

  Sums are not monotonous in their last bit, so there may be none: then it is the largest weight's.
  """
  below = jnp.cumsum(weights, axis=-1)
  passed = (below > (uniform * below[:, -1])[:, None]) & (weights > 0)
  return jnp.where(passed.any(axis=-1), jnp.argmax(passed, axis=-1), jnp.argmax(weights, axis=-1))


def sample_token(keys, position, logits, sampling: SamplingParams):
  """Samples tokens [B] int32 by keys [B], position [] or [B], logits [B, V] float32.

  Returns also logp [B] float32 of the tokens, and the entropy [B] float32 of the distribution they are of.
  Greedy reports those at temperature 1: its own distribution is a point, with log-prob and entropy 0.
  """
  if sampling.temperature == 0:
    tokens = jnp.argmax(logits, axis=-1)
  else:
    logits = filtered(logits, sampling)
    keys = jax.vmap(jax.random.fold_in)(keys, jnp.broadcast_to(position, keys.shape))
    drawn = jax.vmap(jax.random.categorical)
    tokens = jax.lax.platform_dependent(keys, logits, cpu=draw_by_blocks, default=drawn)
  below = logits - jnp.max(logits, axis=-1, keepdims=True)
  likely = jnp.exp(below)
  total = likely.sum(axis=-1)
  logp = jnp.take_along_axis(below, tokens[:, None], axis=-1)[:, 0] - jnp.log(total)
  entropy = jnp.log(total) - (likely * jnp.where(likely > 0, below, 0.0)).sum(axis=-1) / total
  return tokens.astype(jnp.int32), logp, entropy
