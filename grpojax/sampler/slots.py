"""The continuous sampler: a fixed number of slots, refilled on the device from a queue of requests.

A request is a (prompt, sample).  Each prompt is prefilled once and its KV kept once; the first token of
every request is chosen from the prompt's logits.  Requests that go on wait in a queue, and one
while-loop works it off: a slot whose response ended takes the next request in the same iteration, so no
row waits for the longest.  Draws are keyed by request and position: which slot, when and beside whom
changes no token, and `generate.py` samples the same.

On a mesh each of the D shards of the batch has its own prompts, slots and queue; no cache travels.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from grpojax.batch import Rollout
from grpojax.models import Model, by_rows
from grpojax.sampler import prefill as prefill_lib
from grpojax.sampler import shared
from grpojax.sampler.choose import Choice, choose, row_keys
from grpojax.sampler.shared import Kv


class Prefilled(NamedTuple):
  """The prompts' part of the work, once for all samples."""

  logits: jax.Array  # [P, V] float32, of the first response token
  cache: list[Kv]  # per layer, [P, ...] with L columns
  first: jax.Array  # [P] int32, first real column
  columns: jax.Array  # [] int32, computed for them; beyond the prompts' tokens they were padding
  routing: jax.Array | None  # [P, L, layers, k] int8 or int16, -1 on padding, if it is recorded


class Output(NamedTuple):
  """What was sampled so far, by request."""

  tokens: jax.Array  # [D, Bl, T] int32
  logp: jax.Array  # [D, Bl, T] float32
  length: jax.Array  # [D, Bl] int32
  ended: jax.Array  # [D, Bl] bool
  routing: jax.Array | None  # [D, Bl, T - 1, layers, k] int8 or int16, of what was fed; -1: nothing


class Work(NamedTuple):
  """What it took."""

  steps: jax.Array  # [] int32, iterations of the loop
  fed: jax.Array  # [] int32, tokens that went through it; the rest of steps * slots was idle
  prefilled: jax.Array  # [] int32, columns that were computed for prompts; the rest of them was padding
  asked: jax.Array  # [] int32, tokens of the prompts


class State(NamedTuple):
  """What the loop carries.  D shards, S slots and Bl requests on each."""

  step: jax.Array  # [] int32
  head: jax.Array  # [D] int32, next of the queue
  request: jax.Array  # [D, S] int32, Bl: the slot idles
  count: jax.Array  # [D, S] int32, tokens of the response so far, at least 1
  token: jax.Array  # [D, S] int32, the newest of them
  cache: list[Kv]  # per layer, [D * S, ...] with a ring of columns: the slots' own tokens
  out: Output


def build(
  model: Model,
  *,
  group_size: int,
  max_tokens: int,
  choice: Choice,
  eos_ids: tuple[int, ...],
  slots: int,
  shards: int = 1,
  prefill_chunk: int = 128,
  kv_sharding: NamedSharding | None = None,
  kv_cache: str = "full",
  record_routing: bool = False,
):
  """Returns (prefill, decode), pure functions to be jitted.

  prefill(params, tokens [P, L], length [P]) -> Prefilled
  decode(params, prefilled, key, prompt_id [P]) -> (Rollout [P, G, ...], Work)

  `slots` decode at a time, and the batch is cut in `shards`, whose number divides both P and `slots`.
  `kv_sharding` is that of caches, [rows, K, ...]; with kv_cache="int8" they are kept in eight bits.
  Prompts are read `prefill_chunk` tokens of a shard at a time (`prefill.py`).  With `record_routing`
  (mixtures only) Rollout.routing is that of `generate.py`.
  """
  G, T, D, S = group_size, max_tokens, shards, slots // shards
  is_eos = lambda token: jnp.isin(token, jnp.asarray(eos_ids, jnp.int32))  # noqa: E731

  def prefill(params, tokens, length):
    decoder = model.bind(params)
    how = dict(chunk=prefill_chunk, shards=D, record_routing=record_routing)
    seen = prefill_lib.read(decoder, tokens, length, **how)
    cache = [shared.laid_out(*kv, kv_cache) for kv in seen.cache]
    first = tokens.shape[1] - length
    return Prefilled(decoder.logits(seen.hidden), cache, first, seen.columns, seen.routing)

  def first_tokens(logits, keys, routing) -> Output:
    """Sample by sample, because all samples' logits are G times those of the prompts."""
    token, logp = jax.lax.map(lambda k: choose(k, 0, logits, choice), keys.reshape(-1, G).T)
    by_request = lambda x: x.T.reshape(D, -1)  # noqa: E731
    token, logp = by_request(token), by_request(logp)
    room = ((0, 0), (0, 0), (0, T - 1))
    padded = (jnp.pad(x[..., None], room) for x in (token, logp))
    if record_routing:
      routing = jnp.full((*token.shape, T - 1, *routing.shape[2:]), -1, routing.dtype)
    return Output(*padded, jnp.ones(token.shape, jnp.int32), is_eos(token), routing)

  def decode(params, prefilled, key, prompt_id):
    decoder = model.bind(params)
    layers = decoder.unstacked_layers()
    keys = row_keys(key, prompt_id, G)
    out = first_tokens(prefilled.logits, keys, prefilled.routing)
    Bl, L = out.length.shape[1], prefilled.cache[0].values.shape[2]
    keys, begun = keys.reshape(D, Bl), out.tokens[..., 0]
    prompt_length = jnp.repeat(L - prefilled.first, G).reshape(D, Bl)
    of_token = out.routing.shape[3:] if record_routing else ()
    goes_on = ~out.ended & (T > 1)
    queue, waiting = jnp.argsort(~goes_on, axis=1), goes_on.sum(axis=1)

    def refill(state: State, done) -> State:
      """The slots that are done take the next requests, or idle."""
      place = state.head[:, None] + jnp.cumsum(done, axis=1) - 1
      taken = _take(queue, jnp.minimum(place, Bl - 1))
      taken = jnp.where(place < waiting[:, None], taken, Bl)
      token = _take(begun, jnp.minimum(taken, Bl - 1))
      new = lambda x, y: jnp.where(done, x, y)  # noqa: E731
      return state._replace(
        head=jnp.minimum(state.head + done.sum(axis=1), waiting),
        request=new(taken, state.request),
        count=new(1, state.count),
        token=new(token, state.token),
      )

    def step(state: State) -> State:
      busy, at = state.request < Bl, jnp.minimum(state.request, Bl - 1)
      position = _take(prompt_length, at) + state.count - 1
      attention = _attention(model.spec, prefilled, G, state, Bl, kv_cache)
      hidden, cache, routed = decoder.step(layers, state.token.reshape(-1), position.reshape(-1), attention)
      experts = by_rows(routed.experts, model.spec).reshape(D, S, *of_token) if record_routing else None
      flat = choose(_take(keys, at).reshape(-1), state.count.reshape(-1), decoder.logits(hidden), choice)
      token, logp = (x.reshape(D, S) for x in flat)
      ended = is_eos(token)
      out = _write(state.out, state.request, state.count, token, logp, ended, experts)
      done = busy & (ended | (state.count + 1 == T))
      state = State(
        state.step + 1, state.head, state.request, state.count + busy, token, cache, out
      )
      return refill(state, done)

    s, none = model.spec, jnp.zeros((D, S), jnp.int32)
    own = jax.ShapeDtypeStruct((D * S, max(T - 1, 1), s.num_key_value_heads, s.head_dim), s.dtype)
    own = jax.eval_shape(lambda x: shared.laid_out(x, x, kv_cache), own)
    own = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), own)
    if kv_sharding:
      own = jax.lax.with_sharding_constraint(own, kv_sharding)
    cache = [own] * s.num_hidden_layers
    state = State(jnp.int32(0), jnp.zeros(D, jnp.int32), none + Bl, none + 1, none, cache, out)
    state = refill(state, jnp.ones((D, S), bool))
    state = jax.lax.while_loop(lambda x: jnp.any(x.request < Bl), step, state)
    tokens, logp, length, ended, routing = jax.tree.map(lambda a: a.reshape(-1, G, *a.shape[2:]), state.out)
    if record_routing:
      of_prompt = jnp.repeat(prefilled.routing[:, None], G, axis=1)
      routing = jnp.concatenate([of_prompt, routing], axis=2)
    work = Work(state.step, (length - 1).sum(), prefilled.columns, (L - prefilled.first).sum())
    return Rollout(tokens, length, ended, logp, routing), work

  return prefill, decode


def _attention(spec, prefilled: Prefilled, G: int, state: State, requests: int, kv_cache: str):
  """attention(i, q, k, v, scale, cap) of one step, for `Decoder.step`."""
  L, ring = prefilled.cache[0].values.shape[2], state.cache[0].values.shape[2]
  order = shared.order(state.request, requests)
  column, count = state.step % ring, state.count.reshape(-1, 1)
  age = (column - jnp.arange(ring)) % ring  # of what is in the ring, in tokens
  own = age[None] < count  # [R, ring]
  real = jnp.arange(L)[None] >= prefilled.first[:, None]  # [P, L]
  K, m = spec.num_key_value_heads, spec.num_attention_heads // spec.num_key_value_heads

  def in_window(window):
    """[P, G * m, L] bool: the prompt's columns that each query's window reaches back to."""
    asked = order.to_prompts(jnp.broadcast_to(count[..., None, None], (count.size, 1, m, 1)), G)[:, 0]
    return L - 1 + asked - jnp.arange(L)[None, None] < window

  def attention(i, q, k, v, scale, cap):
    kv = shared.write(state.cache[i], shared.laid_out(k, v, kv_cache), column)
    q, window = q.reshape(-1, K, m, q.shape[-1]), spec.windows[i]
    near = own & (age < window)[None] if window else own
    mine = shared.part(q, kv, near[:, None], scale, cap)
    near = real[:, None] & in_window(window) if window else real[:, None]
    asked, of_prompts = order.to_prompts(q, G), prefilled.cache[i]
    if kv_cache == "int8":  # else XLA could restore it once, before the loop, and keep the copy
      asked, of_prompts = jax.lax.optimization_barrier((asked, of_prompts))
    of_prompt = shared.part(asked, of_prompts, near, scale, cap)
    of_prompt = shared.Part(*(order.to_slots(x, G) for x in of_prompt))
    read = shared.join(mine, of_prompt).astype(q.dtype)
    return read.reshape(-1, 1, K * m, q.shape[-1]), kv

  return attention


def _take(x, index):
  """x [D, n], index [D, m] -> [D, m]."""
  return jax.vmap(lambda a, i: a[i])(x, index)


def _write(out: Output, request, count, token, logp, ended, experts) -> Output:
  """One token of every busy slot, all [D, S]; idle slots' requests lie outside and are dropped.

  `experts` [D, S, layers, k] or None are those of the token before, which brought it about.
  """
  into = jax.vmap(lambda a, r, t, x: a.at[r, t].set(x, mode="drop"))
  of = jax.vmap(lambda a, r, x: a.at[r].set(x, mode="drop"))
  return Output(
    into(out.tokens, request, count, token),
    into(out.logp, request, count, logp),
    of(out.length, request, count + 1),
    of(out.ended, request, ended),
    None if experts is None else into(out.routing, request, count - 1, experts),
  )
