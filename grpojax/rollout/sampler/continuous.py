"""The continuous sampler: a fixed number of slots, refilled on the device from a queue of requests.

A request is a (prompt, sample).  Each prompt is prefilled once, into one of P places, and its KV kept
once; the first token of every request is chosen from the prompt's logits.  Requests that go on wait in a
queue, and one while-loop works it off: a slot whose response ended takes the next request in the same
iteration, so no row waits for the longest.  The loop runs in segments, between which the host may put
other prompts in the places of those that have finished (`engine.py`).  Draws are keyed by request and
position: which slot, when and beside whom changes no token, and `static_batch.py` samples the same.

On a mesh each of the D shards of the batch has its own places, slots and queue; no cache travels.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from grpojax.models import Model, Spec, by_rows, unrouted
from grpojax.models.parts import pieces_of
from grpojax.rollout.sampler import kv_budget, prefill, shared_prefix
from grpojax.rollout.sampler.interruption import Interruption, force
from grpojax.rollout.sampler.shared_prefix import Kv, Rings
from grpojax.rollout.sampler.token_sampling import (
  SamplingParams,
  kept_tokens,
  sample_keys,
  sample_token,
  unkept,
)  # fmt: skip
from grpojax.runtime import sharding
from grpojax.types import Rollout


class SamplerSpec(NamedTuple):
  """All that is static: another spec is another program."""

  model: Model
  group_size: int  # G
  max_tokens: int  # T
  sampling: SamplingParams
  eos_ids: tuple[int, ...]
  slots: int  # that decode at a time, S on each shard
  shards: int = 1  # D, of the batch; divides both P and `slots`
  prefill_chunk: int = 32  # tokens of prompts that a shard reads at a time
  kv_sharding: NamedSharding | None = None  # of caches, [K, rows, ...]
  kv_cache: str = "full"  # how caches are kept: `kv_budget.kept_as`
  interruption: Interruption | None = None
  record_routing: bool = False  # mixtures only: Rollout.routing as `static_batch.py` has it
  record_kept: bool = False  # Rollout.kept
  piece_bytes: int = 0  # about, on a device, of what a compiler brings beside the cores ahead; 0: whole


class PromptCache(NamedTuple):
  """Keys and values of the prompts, once for all their samples."""

  kv: list[Kv]  # per layer, [K, P, ...] with L columns, left-padded
  length: jax.Array  # [P] int32
  key: jax.Array  # [P] keys of the prompts' draws


class Counters(NamedTuple):
  """Counters so far."""

  steps: jax.Array  # [] int32, iterations of the decode loop
  decoded_tokens: jax.Array  # [D] int32, that went through the loop; the rest of steps * slots was idle
  responses: jax.Array  # [] int32, begun
  prompt_tokens: jax.Array  # [] int32, of the prompts of these responses
  prefill_columns: jax.Array  # [] int32, computed; those that are no prompt token were padding


class SlotState(NamedTuple):
  """State of the decode loop beside its output.  D shards, S slots and Bl requests on each."""

  queue: jax.Array  # [D, Bl] int32, all requests, those that wait from `head` to `tail`
  head: jax.Array  # [D] int32
  tail: jax.Array  # [D] int32
  request: jax.Array  # [D, S] int32, Bl: the slot idles
  count: jax.Array  # [D, S] int32, tokens of the response so far, at least 1
  token: jax.Array  # [D, S] int32, the newest of them
  cache: list[Rings]  # per layer, [K, D * S, ...] with a ring of columns: the slots' own tokens
  counters: Counters


class Status(NamedTuple):
  """Progress of a rollout, which every host reads after a segment."""

  done: jax.Array  # [P] bool: all samples of the prompt have ended
  busy: jax.Array  # [] bool: some slot is not idle
  waiting: jax.Array  # [] int32, requests that no slot has taken yet
  counters: Counters


def build(model: Model, **spec):
  """Returns (begin, insert, advance), pure functions to be jitted; see `SamplerSpec`.

  begin(params, tokens [P, L], length [P], prompt_id [P], key) -> PromptCache, SlotState, Rollout [P, G, ...]
  insert(params, prompts, state, rollout, tokens, length, prompt_id, key) -> the same
  advance(params, prompts, state, rollout, steps []) -> SlotState, Rollout, Status
  """
  c = SamplerSpec(model, **spec)
  return partial(begin, c), partial(insert, c), partial(advance, c)


def shardings(rows, everywhere, kv) -> tuple[PromptCache, SlotState, Status]:
  """Returns the shardings of a program's values, of those of rows, of what is replicated and of caches."""
  counters = Counters(everywhere, rows, everywhere, everywhere, everywhere)
  state = SlotState(rows, rows, rows, rows, rows, rows, kv, counters)
  return PromptCache(kv, rows, rows), state, Status(everywhere, everywhere, everywhere, everywhere)


def begin(c: SamplerSpec, params, tokens, length, prompt_id, key) -> tuple[PromptCache, SlotState, Rollout]:
  """Starts the first requests of all places at once."""
  return insert(c, params, *_empty(c, *tokens.shape), tokens, length, prompt_id, key)


def insert(c: SamplerSpec, params, prompts, state, out, tokens, length, prompt_id, key):
  """Prompts take their places, of others whose samples all have ended; a prompt of length 0 takes none."""
  decoder = c.model.bind(params)
  fresh = length > 0
  new = lambda x, old: jnp.where(fresh.reshape(-1, *[1] * (old.ndim - 1)), x, old)
  how = dict(chunk=c.prefill_chunk, shards=c.shards, record_routing=c.record_routing)
  seen = prefill.read(decoder, tokens, length, **how)
  cache = [shared_prefix.laid_out(*kv, c.kv_cache) for kv in seen.cache]
  cache = jax.tree.map(lambda x, old: jnp.where(fresh[None, :, None, None], x, old), cache, prompts.kv)
  keys = jax.vmap(jax.random.fold_in, (None, 0))(key, prompt_id)
  prompts = PromptCache(cache, new(length, prompts.length), new(keys, prompts.key))
  out = jax.tree.map(new, _first_tokens(c, decoder.logits(seen.hidden), prompts.key, seen.routing), out)
  goes_on = fresh[:, None] & ~out.ended & (c.max_tokens > 1)
  state = _enqueued(state, goes_on.reshape(c.shards, -1))
  was = state.counters
  counters = was._replace(
    responses=was.responses + fresh.sum() * c.group_size,
    prompt_tokens=was.prompt_tokens + length.sum(),
    prefill_columns=was.prefill_columns + seen.columns,
  )
  idle = state.request == state.queue.shape[1]
  return prompts, _refilled(state._replace(counters=counters), _by_shard(c, out).tokens, idle), out


def advance(c: SamplerSpec, params, prompts, state, out, steps) -> tuple[SlotState, Rollout, Status]:
  """Takes at most so many steps of the loop, fewer where no request is left."""
  decoder, (P, G) = c.model.bind(params), out.length.shape
  layers, L = decoder.unstacked_layers(c.piece_bytes), prompts.kv[0].values.shape[2]
  Bl, until = state.queue.shape[1], state.counters.steps + steps
  keys = sample_keys(prompts.key, G).reshape(c.shards, Bl)
  prompt_length = jnp.repeat(prompts.length, G).reshape(c.shards, Bl)

  def step(carry):
    state, out = carry
    busy, at = state.request < Bl, jnp.minimum(state.request, Bl - 1)
    position = _take(prompt_length, at) + state.count - 1
    attention = _attention(c, prompts, state)
    hidden, cache, routed = decoder.step(layers, state.token.reshape(-1), position.reshape(-1), attention)
    logits = decoder.logits(hidden)
    flat = sample_token(_take(keys, at).reshape(-1), state.count.reshape(-1), logits, c.sampling)
    written = _take(out.tokens, at).reshape(-1, c.max_tokens)
    flat = force(c.interruption, written, state.count.reshape(-1), *flat)
    token, logp, entropy = (x.reshape(busy.shape) for x in flat)
    ended = _is_eos(c, token)
    out = _written(out, state, token, logp, entropy, ended)
    if c.record_kept:
      kept = kept_tokens(logits, c.sampling).reshape(*busy.shape, -1)
      out = out._replace(kept=_into(out.kept, state.request, state.count, kept))
    if c.record_routing:
      experts = by_rows(routed.experts, c.model.spec).reshape(*busy.shape, *out.routing.shape[3:])
      out = out._replace(routing=_into(out.routing, state.request, L + state.count - 1, experts))
    done = busy & (ended | (state.count + 1 == c.max_tokens))
    was = state.counters
    counters = was._replace(steps=was.steps + 1, decoded_tokens=was.decoded_tokens + busy.sum(axis=1))
    state = state._replace(count=state.count + busy, token=token, cache=cache, counters=counters)
    return _refilled(state, out.tokens, done), out

  goes_on = lambda carry: (carry[0].counters.steps < until) & jnp.any(carry[0].request < Bl)
  with jax.named_scope("decode"):
    state, out = jax.lax.while_loop(goes_on, step, (state, _by_shard(c, out)))
  out = jax.tree.map(lambda x: x.reshape(P, G, *x.shape[2:]), out)
  done = jnp.all(out.ended | (out.length == c.max_tokens), axis=1)
  waiting = (state.tail - state.head).sum()
  counters = state.counters._replace(decoded_tokens=state.counters.decoded_tokens.sum())
  return state, out, Status(done, jnp.any(state.request < Bl), waiting, counters)


def _empty(c: SamplerSpec, P: int, L: int) -> tuple[PromptCache, SlotState, Rollout]:
  """Returns the state before the first prompt: no place is taken, and no request waits."""
  s, (D, G, T) = c.model.spec, (c.shards, c.group_size, c.max_tokens)
  Bl, idle = P * G // D, jnp.zeros((D, c.slots // D), jnp.int32)
  zero, none = jnp.zeros(D, jnp.int32), jnp.zeros((P, G), jnp.int32)
  own = _no_rings(c, s)
  routing = None
  if c.record_routing:
    routing = unrouted(s, P, G, L + T - 1)
  kept = unkept(c.sampling, s.vocab_size, P, G, T) if c.record_kept else None
  return (
    PromptCache(
      [_no_kv(c, s, P, L)] * s.num_hidden_layers, none[:, 0], jax.random.split(jax.random.key(0), P)
    ),
    SlotState(
      jnp.broadcast_to(jnp.arange(Bl), (D, Bl)), zero, zero, idle + Bl, idle + 1, idle,
      [own] * s.num_hidden_layers, Counters(jnp.int32(0), zero, *[jnp.int32(0)] * 3),
    ),
    Rollout(
      jnp.zeros((P, G, T), jnp.int32), none, none == 0, *jnp.zeros((2, P, G, T)), routing, kept=kept
    ),
  )  # fmt: skip


def _no_kv(c: SamplerSpec, s: Spec, rows: int, columns: int) -> Kv:
  """Returns the zeros of one layer's caches, laid out and cut as caches are."""
  one = jax.ShapeDtypeStruct((rows, columns, s.num_key_value_heads, s.head_dim), s.dtype)
  one = jax.eval_shape(lambda x: shared_prefix.laid_out(x, x, c.kv_cache), one)
  kv = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), one)
  return jax.lax.with_sharding_constraint(kv, c.kv_sharding) if c.kv_sharding else kv


def _no_rings(c: SamplerSpec, s: Spec) -> Rings:
  """Returns the zeros of one layer's rings; each piece has at most `piece_bytes` of a device's keys."""
  whole, S = _no_kv(c, s, c.slots, kv_budget.ring(c.max_tokens)), c.slots // c.shards
  here = whole.keys.values if c.kv_cache == "int8" else whole.keys
  bytes_here = sharding.bytes_per_chip(here, c.kv_sharding) if c.kv_sharding else here.nbytes
  n = pieces_of(S, -(-bytes_here // c.piece_bytes)) if c.piece_bytes else 1
  return Rings((_no_kv(c, s, c.slots // n, kv_budget.ring(c.max_tokens)),) * n)


def _first_tokens(c: SamplerSpec, logits, key, routing) -> Rollout:
  """Samples first tokens sample by sample, because all samples' logits are G times those of the prompts."""
  keys = sample_keys(key, c.group_size)
  first = [x.T for x in jax.lax.map(lambda k: sample_token(k, 0, logits, c.sampling), keys.T)]
  tokens, *known = (jnp.pad(x[..., None], ((0, 0), (0, 0), (0, c.max_tokens - 1))) for x in first)
  if c.record_routing:
    routing = jnp.repeat(routing[:, None], c.group_size, axis=1)
    room = [(0, 0), (0, 0), (0, c.max_tokens - 1), (0, 0), (0, 0)]
    routing = jnp.pad(routing, room, constant_values=-1)
  kept = None
  if c.record_kept:  # all samples' first tokens are drawn of the same
    kept = unkept(c.sampling, logits.shape[-1], *first[0].shape, c.max_tokens)
    kept = kept.at[:, :, 0].set(kept_tokens(logits, c.sampling)[:, None])
  length = jnp.ones(first[0].shape, jnp.int32)
  return Rollout(tokens, length, _is_eos(c, first[0]), *known, routing, kept=kept)


def _enqueued(state: SlotState, new) -> SlotState:
  """Returns the queue with the requests `new` [D, Bl] behind those that wait already."""
  number = jnp.broadcast_to(jnp.arange(new.shape[1]), new.shape)
  waits = (number >= state.head[:, None]) & (number < state.tail[:, None])
  never = 2 * new.shape[1]
  place = jax.vmap(lambda q, x: x.at[q].set(x))(state.queue, jnp.where(waits, number, never))
  place = jnp.where(new, new.shape[1] + number, place)
  queue = jnp.argsort(place, axis=1).astype(jnp.int32)
  return state._replace(queue=queue, head=jnp.zeros_like(state.head), tail=(place < never).sum(axis=1))


def _refilled(state: SlotState, tokens, done) -> SlotState:
  """Gives the slots that are done [D, S] the next requests, or idles them.  tokens [D, Bl, T]."""
  Bl = state.queue.shape[1]
  place = state.head[:, None] + jnp.cumsum(done, axis=1) - 1
  taken = _take(state.queue, jnp.minimum(place, Bl - 1))
  taken = jnp.where(place < state.tail[:, None], taken, Bl)
  token = jax.vmap(lambda t, r: t[r, 0])(tokens, jnp.minimum(taken, Bl - 1))
  new = lambda x, y: jnp.where(done, x, y)
  return state._replace(
    head=jnp.minimum(state.head + done.sum(axis=1), state.tail),
    request=new(taken, state.request),
    count=new(1, state.count),
    token=new(token, state.token),
  )


def _attention(c: SamplerSpec, prompts: PromptCache, state: SlotState):
  """Returns attention(i, q, k, v, scale, cap) of one step, for `Decoder.step`.

  Rings in pieces are written when they have been read, so that nothing is written that lies beside the
  cores, and the newest token is read apart.  Whole ones are written first: any compiler does that in place.
  """
  spec, D, G = c.model.spec, c.shards, c.group_size
  L, ring = prompts.kv[0].values.shape[2], state.cache[0].pieces[0].values.shape[2]
  order = shared_prefix.order(state.request, state.queue.shape[1] // G, G)
  column, count = state.counters.steps % ring, state.count.reshape(-1, 1)
  age = (column - jnp.arange(ring)) % ring  # of what is in the ring, in tokens
  own = age[None] < count  # [R, ring]
  real = jnp.arange(L)[None] >= L - prompts.length[:, None]  # [P, L]
  K, m = spec.num_key_value_heads, spec.num_attention_heads // spec.num_key_value_heads

  def of_prompts(i, scale, cap, q, block):
    """Returns the Part that the block's samples read of their prompts, by q [prompts, K, G * m, H]."""
    near, window = block.of(real, order.width)[:, None], spec.windows[i]
    if window:  # how far back it reaches differs by query
      asked = block.to_prompts(jnp.broadcast_to(count[..., None, None], (count.size, 1, m, 1)), G)[:, 0]
      near = near & (L - 1 + asked - jnp.arange(L)[None, None] < window)
    kv = jax.tree.map(lambda x: block.of(x, order.width, axis=1), prompts.kv[i])
    if c.kv_cache == "int8":  # else XLA could restore it once, before the loop, and keep the copy
      q, kv = jax.lax.optimization_barrier((q, kv))
    return shared_prefix.part(q, kv, near, scale, cap)

  def attention(i, q, k, v, scale, cap):
    rings, new = state.cache[i], shared_prefix.laid_out(k, v, c.kv_cache)
    q, window = q.reshape(-1, K, m, q.shape[-1]), spec.windows[i]
    near = own & (age < window)[None] if window else own
    parts = [order.read(q, partial(of_prompts, i, scale, cap))]
    if c.piece_bytes:
      parts.append(shared_prefix.part(q, new, jnp.ones((len(q), 1, 1), bool), scale, cap))
      parts.append(rings.read(q, (near & (age > 0)[None])[:, None], D, scale, cap))
      read, at = jax.lax.optimization_barrier((shared_prefix.join(*parts), column))
      rings = rings.write(new, at, D)
    else:
      rings = rings.write(new, column, D)
      read = shared_prefix.join(*parts, rings.read(q, near[:, None], D, scale, cap))
    return read.astype(q.dtype).reshape(-1, 1, K * m, q.shape[-1]), rings

  return attention


def _is_eos(c: SamplerSpec, token):
  return jnp.isin(token, jnp.asarray(c.eos_ids, jnp.int32))


def _by_shard(c: SamplerSpec, out: Rollout) -> Rollout:
  """Reshapes [P, G, ...] to [D, Bl, ...]."""
  return jax.tree.map(lambda x: x.reshape(c.shards, -1, *x.shape[2:]), out)


def _take(x, index):
  """Gathers x [D, n] at index [D, m]: [D, m]."""
  return jax.vmap(lambda a, i: a[i])(x, index)


def _into(x, request, column, new):
  """Writes `new` [D, S, ...] into x [D, Bl, T, ...] at (request, column); idle slots' are outside."""
  return jax.vmap(lambda a, r, t, y: a.at[r, t].set(y, mode="drop"))(x, request, column, new)


def _written(out: Rollout, state: SlotState, token, logp, entropy, ended) -> Rollout:
  """Writes one token of every busy slot, all [D, S]."""
  of = jax.vmap(lambda a, r, x: a.at[r].set(x, mode="drop"))
  return out._replace(
    tokens=_into(out.tokens, state.request, state.count, token),
    length=of(out.length, state.request, state.count + 1),
    ended=of(out.ended, state.request, ended),
    sampler_logp=_into(out.sampler_logp, state.request, state.count, logp),
    sampler_entropy=_into(out.sampler_entropy, state.request, state.count, entropy),
  )
