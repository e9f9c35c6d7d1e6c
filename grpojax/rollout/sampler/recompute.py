"""Keys and values of what is being sampled, of another policy's parameters: all tokens so far are read again.

A policy that is taken up in the middle of a response may go on behind the keys and values of the one before,
as PipelineRL does (https://arxiv.org/abs/2509.19128), or compute them anew, as AReaL does
(https://arxiv.org/abs/2505.24298).  Then what it samples next is exactly of its own distribution.
"""

import jax
import jax.numpy as jnp

from grpojax.rollout.sampler import prefill, shared_prefix
from grpojax.rollout.sampler.continuous import PromptCache, SamplerSpec, SlotState
from grpojax.types import Rollout


def recompute(
  c: SamplerSpec, params, prompts: PromptCache, state: SlotState, out: Rollout, tokens
) -> tuple[PromptCache, SlotState]:
  """Returns the caches of prompts `tokens` [P, L] and of the slots' own tokens by `params`; all else stays.

  It needs room for the caches about three times, as all sequences are read at once.
  """
  decoder, how = c.model.bind(params), dict(chunk=c.prefill_chunk, shards=c.shards)
  of_prompts = prefill.read(decoder, tokens, prompts.length, **how)
  kv = [shared_prefix.laid_out(*pair, c.kv_cache) for pair in of_prompts.cache]
  rows, length = _sequences(c, prompts, state, out, tokens)
  of_slots = prefill.read(decoder, rows, length, **how)
  ring = state.cache[0].pieces[0].values.shape[2]
  age = (state.counters.steps - jnp.arange(ring)) % ring  # of a column's token when the next has age 0
  column = jnp.clip(rows.shape[1] - age, 0, rows.shape[1] - 1)
  rings = [
    old.cut(shared_prefix.laid_out(keys[:, column], values[:, column], c.kv_cache), c.shards)
    for (keys, values), old in zip(of_slots.cache, state.cache, strict=True)
  ]
  return prompts._replace(kv=kv), state._replace(cache=rings)


def _sequences(c: SamplerSpec, prompts: PromptCache, state: SlotState, out: Rollout, tokens) -> tuple:
  """Returns the prompt and own tokens of every slot but the newest, [D * S, L + T] left-padded, and lengths.

  The newest is what the next decode step reads.  Of an idle slot the length is 0.
  """
  (P, L), D, G, T = tokens.shape, c.shards, c.group_size, c.max_tokens
  pick = jax.vmap(lambda x, i: x[i])
  busy, at = state.request < P * G // D, jnp.minimum(state.request, P * G // D - 1)  # [D, S]
  of_prompt = at // G
  ahead = pick(prompts.length.reshape(D, -1), of_prompt)
  length = jnp.where(busy, ahead + state.count - 1, 0)
  since = jnp.arange(L + T)[None, None] - (L + T - length)[..., None]  # columns since the prompt began
  own = since - ahead[..., None]  # and since the response did
  take = lambda x, i: jnp.take_along_axis(x, jnp.clip(i, 0, x.shape[-1] - 1), axis=-1)
  prompt = take(pick(tokens.reshape(D, -1, L), of_prompt), L + own)
  response = take(pick(out.tokens.reshape(D, -1, T), at), own)
  rows = jnp.where(own < 0, prompt, response)
  return rows.reshape(-1, L + T), length.reshape(-1)
