"""The plain sampler: prefill each prompt once, then decode all its samples in one while-loop.

Two programs, both jitted by the caller's `compile`: `prefill` and `decode`.  Every row sits at the
same cache column (prompts are left-padded), so the cache is written in place by one slice; the loop
ends when every row has ended or the budget is used up.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from grpojax.models import Cache, Model, by_rows, int8
from grpojax.rollout.sampler.interruption import Interruption, force
from grpojax.rollout.sampler.token_sampling import SamplingParams, kept_tokens, row_keys, sample_token, unkept
from grpojax.types import Rollout


class Prefilled(NamedTuple):
  """A prompt's part of the work, already repeated for its G samples."""

  logits: jax.Array  # [B, V] float32, of the first response token
  cache: Cache
  first: jax.Array  # [B] int32, first real column
  routing: jax.Array | None  # [B, L, layers, k] int8 or int16, if it is recorded


def build(
  model: Model,
  *,
  group_size: int,
  max_tokens: int,
  sampling: SamplingParams,
  eos_ids: tuple[int, ...],
  record_routing: bool = False,
  record_kept: bool = False,
  kv_cache: str = "full",
  interruption: Interruption | None = None,
):
  """Returns (prefill, decode), pure functions to be jitted.

  prefill(params, tokens [P, L], length [P]) -> Prefilled
  decode(params, prefilled, key, prompt_id [P]) -> Rollout, all [P, G, ...]

  With `record_routing` (mixtures only) Rollout.routing has the experts of every token that the sampler
  fed, -1 on padding and behind the end.  With `record_kept` Rollout.kept has what the filters kept.
  With kv_cache="int8" keys and values are kept in eight bits; a prompt reads its own while they are whole.
  """

  def prefill(params, tokens, length):
    decoder = model.bind(params)
    L = tokens.shape[1]
    first = L - length
    hidden, cache, routed = decoder.prefill(tokens, first, L + max_tokens)
    cache = int8.quantize_cache(cache) if kv_cache == "int8" else cache
    routing = None
    if record_routing:
      real = jnp.arange(L)[None] >= first[:, None]
      routing = jnp.where(real[..., None, None], by_rows(routed.experts, model.spec), -1)
    prefilled = Prefilled(decoder.logits(hidden), cache, first, routing)
    return jax.tree.map(lambda a: jnp.repeat(a, group_size, axis=0), prefilled)

  def decode(params, prefilled, key, prompt_id):
    decoder = model.bind(params)
    layers = decoder.unstacked_layers()
    keys = row_keys(key, prompt_id, group_size)
    L = prefilled.cache[0][0].shape[1] - max_tokens
    B = keys.shape[0]
    is_eos = lambda token: jnp.isin(token, jnp.asarray(eos_ids, jnp.int32))

    def record(t, logits, drawn, kept, ended):
      sampled = force(interruption, drawn[0], t, *sample_token(keys, t, logits, sampling))
      if record_kept:
        kept = kept.at[:, t].set(jnp.where(ended[:, None], -1, kept_tokens(logits, sampling)))
      new = [jnp.where(ended, 0, x) for x in sampled]
      drawn = [x.at[:, t].set(now) for x, now in zip(drawn, new, strict=True)]
      return new[0], drawn, kept, ended | is_eos(new[0])

    def step(carry):
      t, token, drawn, kept, length, ended, cache, routing = carry
      hidden, cache, routed = decoder.decode(layers, token, L + t - 1, prefilled.first, cache)
      if record_routing:
        fed = jnp.where(ended[:, None, None, None], -1, by_rows(routed.experts, model.spec))
        routing = jax.lax.dynamic_update_slice_in_dim(routing, fed, L + t - 1, axis=1)
      length = length + ~ended
      token, drawn, kept, ended = record(t, decoder.logits(hidden), drawn, kept, ended)
      return t + 1, token, drawn, kept, length, ended, cache, routing

    nothing = [jnp.zeros((B, max_tokens), dtype) for dtype in (jnp.int32, jnp.float32, jnp.float32)]
    none = unkept(sampling, model.spec.vocab_size, B, max_tokens) if record_kept else None
    token, drawn, kept, ended = record(0, prefilled.logits, nothing, none, jnp.zeros(B, bool))
    unfinished = lambda c: (c[0] < max_tokens) & ~jnp.all(c[5])
    routing = prefilled.routing
    if record_routing:
      routing = jnp.pad(routing, ((0, 0), (0, max_tokens - 1), (0, 0), (0, 0)), constant_values=-1)
    length = jnp.ones(B, jnp.int32)
    start = jnp.int32(1), token, drawn, kept, length, ended, prefilled.cache, routing
    with jax.named_scope("decode"):
      _, _, (tokens, *known), kept, length, ended, _, routing = jax.lax.while_loop(unfinished, step, start)
    grouped = lambda a: a.reshape(-1, group_size, *a.shape[1:])
    return jax.tree.map(grouped, Rollout(tokens, length, ended, *known, routing, kept=kept))

  return prefill, decode
