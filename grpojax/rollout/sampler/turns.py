"""The sampler of trajectories: slots whose caches go on from turn to turn.

A slot holds one trajectory, token by token from column 0 on: the host gives it tokens to read, the prompt
first and then each observation behind the action, and it decodes an action until its EOS or its budget.
Few slots read at a time, so that what the others have to read is not waited for: a program of R of them costs
R times W columns, whoever they are.  A prompt is read once for the slots of a shard that begin with it, which
copy its columns and sample from its last hidden state.  A slot that waits for its environment costs its share
of a decode step and changes nothing.

Draws are keyed by (seed and step, prompt, sample, turn, position in the turn), and no row reads another:
which slot, when and beside whom changes no token.  On a mesh the slots are cut over the shards of the batch,
each with as many readers, whose numbers of slots are those of their shard; no cache travels.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from grpojax.models import Model
from grpojax.rollout.sampler import shared_prefix
from grpojax.rollout.sampler.shared_prefix import Kv
from grpojax.rollout.sampler.token_sampling import SamplingParams, sample_token


class SlotSpec(NamedTuple):
  """All that is static: another spec is another program."""

  model: Model
  slots: int  # S
  readers: int  # R, slots that read at a time
  columns: int  # C, of a slot's cache: the longest prompt and all that may follow it
  prompt_columns: int  # L, of these: the longest prompt
  action_tokens: int  # A, of one action, EOS included
  sampling: SamplingParams
  eos_ids: tuple[int, ...]
  shards: int = 1  # D, of the batch; divides S and R
  kv_sharding: NamedSharding | None = None  # of caches, [K, S, ...]


class Slots(NamedTuple):
  """State on the device."""

  cache: list[Kv]  # per layer, [K, S, ...] with C columns
  position: jax.Array  # [S] int32, tokens in the cache
  key: jax.Array  # [S] keys of the turn's draws
  cap: jax.Array  # [S] int32, tokens that the action may have
  acting: jax.Array  # [S] bool: the action goes on
  count: jax.Array  # [S] int32, tokens of the action so far; the newest is not in the cache
  actions: jax.Array  # [S, A] int32
  logp: jax.Array  # [S, A] float32, under the sampling distribution
  entropy: jax.Array  # [S, A] float32, of the sampling distribution


class Chunk(NamedTuple):
  """Tokens that readers read next."""

  slot: jax.Array  # [R] int32, of the reader's shard; S / D: nobody's
  tokens: jax.Array  # [R, W] int32
  length: jax.Array  # [R] int32
  start: jax.Array  # [R] int32, the column of the first


class Start(NamedTuple):
  """Slots that begin an action behind what they, or another of their shard, have read."""

  slot: jax.Array  # [R] int32, of the shard; S / D: nobody's
  reader: jax.Array  # [R] int32, of the shard, in the call that read the last token
  source: jax.Array  # [R] int32, the slot of the shard whose prompt this one takes, or its own
  position: jax.Array  # [R] int32, tokens in the cache
  cap: jax.Array  # [R] int32, tokens that the action may have
  prompt: jax.Array  # [R] int32, id of the prompt
  sample: jax.Array  # [R] int32
  turn: jax.Array  # [R] int32


def build(model: Model, **spec):
  """Returns (empty, read, begin, act), pure functions to be jitted; see `SlotSpec`.

  empty() -> Slots
  read(params, slots, Chunk) -> Slots, hidden [R, width] of each reader's last token
  begin(params, slots, hidden, key, Start) -> Slots
  act(params, slots, steps [], playing [S] bool) -> Slots, decode steps [], tokens fed []
  """
  c = SlotSpec(model, **spec)
  return partial(empty, c), partial(read, c), partial(begin, c), partial(act, c)


def empty(c: SlotSpec) -> Slots:
  """Returns slots that hold nothing."""
  s, (S, A) = c.model.spec, (c.slots, c.action_tokens)

  def zeros(*of_slot):
    x = jnp.zeros((s.num_key_value_heads, S, *of_slot), s.dtype)
    return jax.lax.with_sharding_constraint(x, c.kv_sharding) if c.kv_sharding else x

  none, (C, H) = jnp.zeros(S, jnp.int32), (c.columns, s.head_dim)
  cache = [Kv(zeros(H, C), zeros(C, H)) for _ in range(s.num_hidden_layers)]
  keys = jax.random.split(jax.random.key(0), S)
  return Slots(cache, none, keys, none, none > 0, none, jnp.zeros((S, A), jnp.int32), *jnp.zeros((2, S, A)))


def read(c: SlotSpec, params, slots: Slots, chunk: Chunk):
  """Reads a chunk of some slots' tokens behind what these hold."""
  decoder = c.model.bind(params)
  offset = jnp.arange(chunk.tokens.shape[1])
  at = chunk.start[:, None] + offset[None]
  real = offset[None] < chunk.length[:, None]
  attention = _attention(c, slots.cache, at, real, chunk.slot)
  hidden, cache = decoder.steps(decoder.unstacked_layers(), chunk.tokens, at, attention)
  last = jnp.maximum(chunk.length - 1, 0)[:, None, None]
  return slots._replace(cache=cache), jnp.take_along_axis(hidden, last, axis=1)[:, 0]


def begin(c: SlotSpec, params, slots: Slots, hidden, key, start: Start) -> Slots:
  """Samples the first token of actions."""
  decoder = c.model.bind(params)
  keys = jax.vmap(_turn_key, (None, 0, 0, 0))(key, start.prompt, start.sample, start.turn)
  logits = decoder.logits(_rows(c, hidden, start.reader))
  token, logp, entropy = sample_token(keys, jnp.zeros_like(start.slot), logits, c.sampling)
  new = lambda x, values: _set(c, x, start.slot, values)
  first = lambda x, values: x.at[:, 0].set(new(x[:, 0], values))
  return slots._replace(
    cache=[_with_prompts(c, kv, start) for kv in slots.cache],
    position=new(slots.position, start.position),
    key=new(slots.key, keys),
    cap=new(slots.cap, start.cap),
    acting=new(slots.acting, ~_ends(c, token, jnp.ones_like(token), start.cap)),
    count=new(slots.count, jnp.ones_like(token)),
    actions=first(slots.actions, token),
    logp=first(slots.logp, logp),
    entropy=first(slots.entropy, entropy),
  )


def act(c: SlotSpec, params, slots: Slots, steps, playing):
  """Takes at most so many steps of the slots whose action goes on; fewer where none does any more."""
  decoder = c.model.bind(params)
  layers = decoder.unstacked_layers()

  def step(carry):
    taken, fed, slots = carry
    on = slots.acting
    newest = jnp.take_along_axis(slots.actions, jnp.maximum(slots.count - 1, 0)[:, None], axis=1)
    at = slots.position[:, None]
    attention = _attention(c, slots.cache, at, on[:, None])
    hidden, cache, _ = decoder.step(layers, newest[:, 0], slots.position, attention)
    slots = slots._replace(cache=cache, position=slots.position + on)
    return taken + 1, fed + on.sum(), _sampled(c, slots, decoder.logits(hidden), on)

  goes_on = lambda carry: (carry[0] < steps) & carry[2].acting.any()
  slots = slots._replace(acting=slots.acting & playing)
  with jax.named_scope("decode"):
    taken, fed, slots = jax.lax.while_loop(goes_on, step, (jnp.int32(0), jnp.int32(0), slots))
  return slots, taken, fed


def _turn_key(key, prompt, sample, turn):
  for number in (prompt, sample, turn):
    key = jax.random.fold_in(key, number)
  return key


def _sampled(c: SlotSpec, slots: Slots, logits, on) -> Slots:
  """Samples the next token of the actions that are `on` [S]."""
  token, logp, entropy = sample_token(slots.key, slots.count, logits, c.sampling)
  column = jnp.where(on, slots.count, c.action_tokens)
  count = slots.count + on
  return slots._replace(
    acting=jnp.where(on, ~_ends(c, token, count, slots.cap), slots.acting),
    count=count,
    actions=_put(slots.actions, column, token),
    logp=_put(slots.logp, column, logp),
    entropy=_put(slots.entropy, column, entropy),
  )


def _ends(c: SlotSpec, token, count, cap):
  """Returns whether actions are over whose newest, `count`-th token this is."""
  return jnp.isin(token, jnp.asarray(c.eos_ids, jnp.int32)) | (count == cap)


def _attention(c: SlotSpec, cache: list[Kv], at, real, slot=None):
  """Returns attention(i, q, k, v, scale, cap), for `Decoder.step` and `.steps`, of tokens in columns `at`.

  `at` is [S, n] of all slots, or [R, n] of those of `slot` [R].  Keys and values are written where `real`, of
  the same shape; a token sees its own column and those before it.
  """
  spec, (rows, n) = c.model.spec, at.shape
  K = spec.num_key_value_heads
  m, column, asked = spec.num_attention_heads // K, jnp.arange(c.columns)[None, None], at[..., None]
  into = jnp.where(real, at, c.columns)
  everyone = jnp.tile(jnp.arange(c.slots // c.shards), c.shards)

  def attention(i, q, k, v, scale, cap):
    kept = _written(c, cache[i], everyone if slot is None else slot, into, k, v)
    own = kept if slot is None else _of_slots(c, kept, slot)
    window = spec.windows[i]
    seen = (column <= asked) & (asked - column < window) if window else column <= asked  # [S or R, n, C]
    q = q.reshape(rows, n, K, m, -1).swapaxes(1, 2).reshape(rows, K, n * m, -1)
    read = shared_prefix.join(shared_prefix.part(q, own, jnp.repeat(seen, m, axis=1), scale, cap))
    read = read.reshape(rows, K, n, m, -1).swapaxes(1, 2).reshape(rows, n, K * m, -1)
    return read.astype(q.dtype), kept

  return attention


def _written(c: SlotSpec, kv: Kv, slot, column, k, v) -> Kv:
  """Writes k and v [R, n, K, H] at each `slot` [R] and `column` [R, n]; what lies beyond C is dropped."""

  def of_shard(kv, slot, column, k, v):
    slot = slot[:, None]
    keys = kv.keys.at[:, slot, :, column].set(k, mode="drop")
    return Kv(keys, kv.values.at[:, slot, column].set(v.transpose(2, 0, 1, 3), mode="drop"))

  return _by_shards(c, of_shard, kv, slot, column, k, v)


def _with_prompts(c: SlotSpec, kv: Kv, start: Start) -> Kv:
  """Copies the prompts' columns from slot to slot."""
  L = c.prompt_columns

  def of_shard(kv, slot, source):
    keys = kv.keys.at[:, slot, :, :L].set(kv.keys[:, source, :, :L], mode="drop")
    return Kv(keys, kv.values.at[:, slot, :L].set(kv.values[:, source, :L], mode="drop"))

  return _by_shards(c, of_shard, kv, start.slot, start.source)


def _of_slots(c: SlotSpec, kv: Kv, slot) -> Kv:
  """Returns the caches [K, R, ...] at `slot` [R]; any, where that is nobody's."""
  return _by_shards(c, lambda kv, slot: jax.tree.map(lambda x: x[:, slot], kv), kv, slot)


def _by_shards(c: SlotSpec, fn, kv: Kv, *rows) -> Kv:
  """Returns fn(kv, *rows) of every shard, side by side."""
  cut = jax.tree.map(lambda x: x.reshape(len(x), c.shards, -1, *x.shape[2:]), kv)
  found = jax.vmap(fn, (1, *[0] * len(rows)), 1)(cut, *(_by_shard(c, x) for x in rows))
  return jax.tree.map(lambda x: x.reshape(len(x), -1, *x.shape[3:]), found)


def _put(x, column, new):
  """Writes `new` [S] into x [S, A] at `column` [S]; what lies beyond A is dropped."""
  return jax.vmap(lambda row, at, value: row.at[at].set(value, mode="drop"))(x, column, new)


def _set(c: SlotSpec, x, slot, new):
  """Writes `new` [R] into x [S] at `slot` [R] of each shard."""
  found = jax.vmap(lambda x, slot, new: x.at[slot].set(new, mode="drop"))
  return found(*(_by_shard(c, y) for y in (x, slot, new))).reshape(x.shape)


def _rows(c: SlotSpec, x, place):
  """Returns the rows of x [R, ...] at `place` [R] of each shard."""
  found = jax.vmap(lambda x, place: x[place])(_by_shard(c, x), _by_shard(c, place))
  return found.reshape(x.shape)


def _by_shard(c: SlotSpec, x):
  return x.reshape(c.shards, -1, *x.shape[1:])
