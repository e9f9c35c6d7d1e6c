"""The sampler of trajectories: slots whose caches go on from turn to turn.

A slot holds one trajectory, token by token from column 0 on: the host gives it tokens to read, the prompt
first and then each observation behind the action, and it decodes an action until its EOS or its budget.
Every token of a trajectory is computed once.  A slot that waits for its environment costs its share of a step
and changes nothing.

Draws are keyed by (seed and step, prompt, sample, turn, position in the turn), and no row reads another:
which slot, when and beside whom changes no token.  On a mesh the slots are cut over the shards of the batch.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from grpojax.models import Model
from grpojax.models.attention import attend
from grpojax.rollout.sampler.token_sampling import SamplingParams, sample_token


class SlotSpec(NamedTuple):
  """All that is static: another spec is another program."""

  model: Model
  slots: int  # S
  columns: int  # C, of a slot's cache: the longest prompt and all that may follow it
  action_tokens: int  # A, of one action, EOS included
  sampling: SamplingParams
  eos_ids: tuple[int, ...]
  kv_sharding: NamedSharding | None = None  # of caches, [S, C, K, H]


class Slots(NamedTuple):
  """State on the device."""

  cache: list[tuple[jax.Array, jax.Array]]  # per layer keys and values [S, C, K, H]
  position: jax.Array  # [S] int32, tokens in the cache
  key: jax.Array  # [S] keys of the turn's draws
  cap: jax.Array  # [S] int32, tokens that the action may have
  acting: jax.Array  # [S] bool: the action goes on
  count: jax.Array  # [S] int32, tokens of the action so far; the newest is not in the cache
  actions: jax.Array  # [S, A] int32
  logp: jax.Array  # [S, A] float32, under the sampling distribution


class Chunk(NamedTuple):
  """What slots read next; a slot that reads nothing has length 0."""

  tokens: jax.Array  # [S, W] int32
  length: jax.Array  # [S] int32
  start: jax.Array  # [S] int32, the column of the first
  acts: jax.Array  # [S] bool: an action follows the last of them
  cap: jax.Array  # [S] int32, tokens that this action may have
  prompt: jax.Array  # [S] int32, id of the prompt
  sample: jax.Array  # [S] int32
  turn: jax.Array  # [S] int32


def build(model: Model, **spec):
  """Returns (empty, read, act), pure functions to be jitted; see `SlotSpec`.

  empty() -> Slots
  read(params, slots, key, Chunk) -> Slots
  act(params, slots, steps [], playing [S] bool) -> Slots, decode steps [], tokens fed []
  """
  c = SlotSpec(model, **spec)
  return partial(empty, c), partial(read, c), partial(act, c)


def empty(c: SlotSpec) -> Slots:
  """Returns slots that hold nothing."""
  s, (S, A) = c.model.spec, (c.slots, c.action_tokens)

  def zeros():
    x = jnp.zeros((S, c.columns, s.num_key_value_heads, s.head_dim), s.dtype)
    return jax.lax.with_sharding_constraint(x, c.kv_sharding) if c.kv_sharding else x

  none = jnp.zeros(S, jnp.int32)
  cache = [(zeros(), zeros()) for _ in range(s.num_hidden_layers)]
  keys = jax.random.split(jax.random.key(0), S)
  actions, logp = jnp.zeros((S, A), jnp.int32), jnp.zeros((S, A), jnp.float32)
  return Slots(cache, none, keys, none, none > 0, none, actions, logp)


def read(c: SlotSpec, params, slots: Slots, key, chunk: Chunk) -> Slots:
  """Reads a chunk of every slot's tokens behind what it holds; samples the first token of an action."""
  decoder = c.model.bind(params)
  reads, offset = chunk.length > 0, jnp.arange(chunk.tokens.shape[1])
  position = jnp.where(reads, chunk.start, slots.position)
  at = position[:, None] + offset[None]
  real = offset[None] < chunk.length[:, None]
  attention = _attention(c, slots.cache, at, real)
  hidden, cache = decoder.steps(decoder.unstacked_layers(), chunk.tokens, at, attention)
  last = jnp.maximum(chunk.length - 1, 0)[:, None, None]
  logits = decoder.logits(jnp.take_along_axis(hidden, last, axis=1)[:, 0])
  keys = jax.vmap(_turn_key, (None, 0, 0, 0))(key, chunk.prompt, chunk.sample, chunk.turn)
  begins = reads & chunk.acts
  new = lambda x, old: jnp.where(begins, x, old)
  slots = slots._replace(
    cache=cache,
    position=position + chunk.length,
    key=new(keys, slots.key),
    cap=new(chunk.cap, slots.cap),
    count=new(0, slots.count),
  )
  return _sampled(c, slots, logits, begins)


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
  token, logp = sample_token(slots.key, slots.count, logits, c.sampling)
  column = jnp.where(on, slots.count, c.action_tokens)
  count = slots.count + on
  ended = jnp.isin(token, jnp.asarray(c.eos_ids, jnp.int32)) | (count == slots.cap)
  return slots._replace(
    acting=jnp.where(on, ~ended, slots.acting),
    count=count,
    actions=_put(slots.actions, column, token),
    logp=_put(slots.logp, column, logp),
  )


def _attention(c: SlotSpec, cache: list, at, real):
  """Returns attention(i, q, k, v, scale, cap), for `Decoder.step` and `.steps`, of tokens in columns `at` [S,
  n].

  Keys and values are written where `real` [S, n]; a token sees its own column and those before it.
  """
  column, at = jnp.arange(c.columns)[None, None], at[..., None]
  seen = column <= at  # [S, n, C]
  into = jnp.where(real, at[..., 0], c.columns)

  def attention(i, q, k, v, scale, cap):
    kept = tuple(_put(x, into, new) for x, new in zip(cache[i], (k, v), strict=True))
    window = c.model.spec.windows[i]
    near = seen & (at - column < window) if window else seen
    return attend(q, *kept, near, scale, cap), kept

  return attention


def _put(x, column, new):
  """Writes `new` into each row of x [S, C, ...] at `column` [S] or [S, n]; what lies beyond C is dropped."""
  return jax.vmap(lambda row, at, values: row.at[at].set(values, mode="drop"))(x, column, new)
