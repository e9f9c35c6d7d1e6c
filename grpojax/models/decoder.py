"""The decoder: RMSNorm, rotary positions, grouped-query attention, a gated MLP or a mixture.

Flax NNX used functionally: `build` splits the module once into a static graph and a plain nested dict
of parameters; jit, scan, grad and checkpoint are JAX's own.  Layers are stacked on their first axis
and scanned, so that compile time does not grow with depth; what differs between them (window, rotary
table) is scanned along as data.  Only the decode loop unrolls them, because a scanned KV cache would
be copied at every token.

Sequences are left-padded: the last columns are the newest tokens, and `first [B]` names the first
real column of each row.  `forward` also takes rows that several sequences share: `segment [B, S]`
numbers the sequence of each column, and its positions start at 0; `response [B, S]` those behind one prompt.

Every parameter carries the logical axes that `sharding.py` maps to a mesh.
"""

from functools import partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from grpojax.models import bands, int8, kernels
from grpojax.models import lora as lora_lib
from grpojax.models import spec as spec_lib
from grpojax.models.attention import View, angles, attend, left_padded, rotate, sequence_view, view
from grpojax.models.block import Block
from grpojax.models.lora import Lora
from grpojax.models.parts import in_pieces, matrix, rematerialised, rms_norm, softcap, vector
from grpojax.models.spec import Spec
from grpojax.runtime import sharding

Kept = jax.Array | int8.Int8  # [B, S, K, head_dim]
Cache = list[tuple[Kept, Kept]]  # per layer: keys, values


class Decoder(nnx.Module):
  """The map from token ids to hidden states; callers take `logits` of hidden states chunk by chunk."""

  def __init__(self, s: Spec, mesh: Mesh | None, rules: sharding.Rules, rngs: nnx.Rngs):
    self.spec, self.mesh, self.rules = s, mesh, tuple(rules.items())  # static: hashed
    self.dtype, self.head_dtype = jnp.dtype(s.dtype), jnp.dtype(s.head_dtype or s.dtype)
    shape = (s.vocab_size, s.hidden_size)
    self.embedding = matrix(rngs, ("vocab", "embed"), shape, 0.02, s.param_dtype)
    self.layers = jax.vmap(lambda key: Block(s, mesh, rules, nnx.Rngs(key)))(
      jax.random.split(rngs.params(), s.num_hidden_layers)
    )
    self.final_norm = vector(("embed",), s.hidden_size, 1.0 - s.norm_offset, s.param_dtype)
    self.beside, self.adapter_scale = nnx.data({}), 0.0  # of matrices by path, put on by `Model.bind`
    self.remat, self.attention = "full", "reference"
    if s.labels:
      self.score = matrix(
        rngs, (None, "embed"), (s.labels, s.hidden_size), s.hidden_size**-0.5, s.param_dtype
      )
    elif not s.tie_word_embeddings:
      self.head = matrix(rngs, ("vocab", "embed"), shape, s.hidden_size**-0.5, s.param_dtype)
    if s.score_bias:
      self.score_bias = vector((None,), s.labels, 0.0, s.param_dtype)

  def __call__(self, tokens, first):
    """Returns hidden [B, S, D] after the final norm; tokens [B, S] int32, first [B]."""
    return self.forward(tokens, left_padded(tokens.shape[1], first))[0]

  def forward(self, tokens, segment, routing=None, counted=None, response=None, longest=None):
    """Returns hidden [B, S, D] and the mixtures' Routed ([layers, ...]) or None; tokens, segment [B, S].

    A token sees the tokens before it with its own number in `segment`; one number's columns are contiguous.
    With `response` [B, S] (`attention.sequence_view`) these are a prompt and several responses; `longest`
    are the most columns of either.
    `routing` [layers, B, S, k] int32 replays a choice of experts, -1 routes normally; `counted`
    [B, S] bool are the tokens whose load is summed up for `moe.load_balance_loss`.
    """
    S = tokens.shape[1]
    inputs = self._with_room(tokens, segment, routing, counted, response)
    tokens, segment, routing, counted, response = inputs
    x, routed = self._through(tokens, self._view_of(segment, response, longest), routing, counted)
    if routed is not None:
      routed = routed._replace(experts=routed.experts[:, :, :S])
    return sharding.whole_columns(self.mesh, x)[:, :S], routed

  def _through(self, tokens, seen, routing=None, counted=None):
    """Returns hidden [B, S, D] after the final norm, and Routed or None; `seen` is the tokens' view."""

    def block(x, layer):
      layer, kind, replay = layer
      x = self._on_mesh(x, of_learner=True)
      x, _, routed = self._whole(*layer)(x, *seen.of(*kind), replay=replay, counted=counted)
      return x, routed

    block, layers = rematerialised(block, self.remat), (self._stacked(), self._kinds(), routing)
    x, routed = jax.lax.scan(block, self._where_table_is(self._embed(tokens)), layers)
    return self._final_norm(x), routed

  def prefill(self, tokens, first, cache_length: int):
    """Returns hidden [B, D] of the last of tokens [B, L], a cache of `cache_length` columns, and Routed."""
    seen = self._view(left_padded(tokens.shape[1], first))

    def block(x, layer):
      layer, kind = layer
      x, kv, routed = self._whole(*layer)(x, *seen.of(*kind))
      return x, (kv, routed)

    x, ((keys, values), routed) = jax.lax.scan(
      block, self._embed(tokens), (self._stacked(), self._kinds())
    )
    room = ((0, 0), (0, cache_length - tokens.shape[1]), (0, 0), (0, 0))
    cache = [(jnp.pad(k, room), jnp.pad(v, room)) for k, v in zip(keys, values, strict=True)]
    return self._final_norm(x[:, -1]), cache, routed

  def extend(self, tokens, positions, before):
    """Returns hidden [B, C, D] of tokens [B, C] of sequences end to end, their keys and values, and Routed.

    A token at position p [B, C] of its sequence sees that and the p columns before it, which lie here or
    in `before`: keys and values [layers, B, W, K, H] each, as the new ones are [layers, B, C, K, H].
    """
    W, C = before[0].shape[2], tokens.shape[1]
    distance = (W + jnp.arange(C)[:, None] - jnp.arange(W + C)[None])[None]
    mask = (distance >= 0) & (distance <= positions[..., None])
    seen = view(mask, distance, positions, self._frequencies())

    def block(x, layer):
      layer, kind, before = layer
      attention, turn = seen.of(*kind)

      def over_both(q, k, v, *how):
        both = (jnp.concatenate(pair, axis=1) for pair in zip(before, (k, v), strict=True))
        return attention(q, *both, *how)[0], (k, v)

      x, kv, routed = self._whole(*layer)(self._on_mesh(x), over_both, turn)
      return x, (kv, routed)

    x, (kv, routed) = jax.lax.scan(block, self._embed(tokens), (self._stacked(), self._kinds(), before))
    return self._final_norm(x), kv, routed

  def decode(self, layers, tokens, column, first, cache: Cache):
    """Returns hidden [B, D], cache and Routed of one token per row, tokens [B], all at the same cache column.

    `layers` comes from `unstacked_layers`, called once outside the decode loop.
    """
    keys = jnp.arange(cache[0][0].shape[1])
    mask = (keys[None, None, :] >= first[:, None, None]) & (keys <= column)[None, None, :]
    windows = self.spec.windows

    def attention(i, q, k, v, scale, cap):
      kept = tuple(int8.write(old, new, column) for old, new in zip(cache[i], (k, v), strict=True))
      k, v = (int8.read(x, q.dtype) for x in kept)
      near = (column - keys < windows[i])[None, None] if windows[i] else True
      return attend(q, k, v, mask & near, scale, cap), kept

    return self.step(layers, tokens, column - first, attention)

  def step(self, layers, tokens, positions, attention):
    """Returns hidden [B, D], what each layer keeps, Routed, of one token per row; tokens, positions [B].

    attention(i, q, k, v, scale, cap) is layer i's attention (`Block`); q, k, v are [B, 1, heads, head_dim].
    """
    x, kept, routed = self._through_each(layers, tokens[:, None], positions[:, None], attention)
    return self._final_norm(x[:, 0]), kept, routed

  def steps(self, layers, tokens, positions, attention):
    """Returns hidden [B, n, D] and what each layer keeps, of n tokens per row; tokens, positions [B, n].

    As `step`, with q, k, v [B, n, heads, head_dim]; what a token sees of the n is `attention`'s to say.
    """
    x, kept, _ = self._through_each(layers, tokens, positions, attention)
    return self._final_norm(x), kept

  def _through_each(self, layers, tokens, positions, attention):
    """Returns x [B, n, D] behind all layers, what each keeps, and Routed; see `step`."""
    cos, sin = angles(positions, self._frequencies())
    x, kept, choices = self._embed(tokens), [], []
    for i, layer in enumerate(layers):
      table = self.spec.rope_of[i]
      if layer[1]:  # else XLA dequantizes int8 matrices once, before the decode loop, and keeps the copy
        layer, x = jax.lax.optimization_barrier((layer, x))
      turn = partial(rotate, rope=(cos[table], sin[table]))
      x, own, routed = self._whole(*layer)(x, partial(attention, i), turn)
      kept.append(own)
      choices.append(routed)
    return x, kept, jax.tree.map(lambda *leaves: jnp.stack(leaves), *choices)

  def unstacked_layers(self, piece_bytes: int = 0) -> list[tuple[Block, dict]]:
    """Returns the layers one by one, for `step`: adapters merged, matrices in compute dtype or still int8.

    Matrices in the compute dtype are cut in pieces (`parts.in_pieces`) of `piece_bytes` a device; 0: whole.
    """
    cast = lambda a: a.astype(self.dtype) if a.ndim > 1 and a.dtype != jnp.int8 else a

    def one(i):
      layer, beside = jax.tree.map(lambda a: a[i], self._stacked())
      scales = {path: pair for path, pair in beside.items() if "scale" in pair}
      adapters = {path: pair for path, pair in beside.items() if "scale" not in pair}
      layer = jax.tree.map(cast, self._whole(layer, adapters))
      return self._in_pieces(layer, piece_bytes) if piece_bytes and not scales else layer, scales

    return [one(i) for i in range(self.spec.num_hidden_layers)]

  def _in_pieces(self, layer: Block, piece_bytes: int) -> Block:
    """Cuts the layer's matrices along the residual stream, unless the mesh already cuts that axis."""
    for name in ("q", "k", "v", "o", "gate", "up", "down"):
      variable = getattr(layer, name, None)
      if variable is None:
        continue
      weight, axis, bytes_here = variable[...], variable.axes.index("embed"), variable[...].nbytes
      if self.mesh is not None:
        cut = sharding.partition(self.mesh, variable.axes, weight.shape, dict(self.rules))
        if sharding.wide_axes(self.mesh, cut[axis]):
          continue
        bytes_here = sharding.bytes_per_chip(weight, NamedSharding(self.mesh, cut))
      variable.set_value(in_pieces(weight, axis, -(-bytes_here // piece_bytes)))
    return layer

  def unembedding(self):
    """Returns the unembedding [V, D] in the head's dtype."""
    if self.spec.tie_word_embeddings:
      return self.embedding[...].astype(self.head_dtype)
    return self._matrix("head", self.head[...], self.beside).astype(self.head_dtype)

  def _stacked(self) -> tuple[Block, dict]:
    """Returns the layers and the adapters or scales beside them, both stacked; a scan makes each `_whole`."""
    return self.layers, {path: pair for path, pair in self.beside.items() if path.startswith("layers.")}

  def _whole(self, layer: Block, beside: dict) -> Block:
    """Returns the layer with its adapters merged, or its int8 matrices dequantized."""
    layer = jax.tree.map(lambda a: a, layer)  # a copy, which is changed below
    for path in beside:
      variable = reduce(getattr, path.split(".")[1:], layer)
      variable.set_value(self._matrix(path, variable[...], beside))
    return layer

  def _matrix(self, path: str, weight, beside: dict):
    if path not in beside:
      return weight
    if "scale" in beside[path]:
      return int8.dequantize(weight, beside[path]["scale"])
    return lora_lib.merge(weight, beside[path], self.spec, path, self.adapter_scale)

  def logits(self, hidden):
    """Returns logits [..., V] float32 of hidden [..., D]."""
    return logits(hidden, self.unembedding(), self.spec.logit_softcap)

  def scores(self, hidden):
    """Returns a classifier's scores [..., labels] float32 of hidden [..., D]."""
    out = logits(hidden, self.score[...].astype(self.dtype))
    bias = self.score_bias[...].astype(jnp.float32) if self.spec.score_bias else jnp.zeros(self.spec.labels)
    return out + jnp.broadcast_to(bias, out.shape)

  def _on_mesh(self, x, of_learner: bool = False):
    """Constrains x [B, S, D] to its rows' devices, whole in D; of_learner: cut as the learner cuts rows.

    Else a compiler may cut D, as matrices are, and add up products of every row on every device, which
    is many times what gathering the matrices takes.
    """
    if self.mesh is None:
      return x
    where = PartitionSpec(sharding.batch_axes(self.mesh))
    if of_learner:
      where = sharding.cut_of(self.mesh, x.shape[0])
    return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, where))

  def _where_table_is(self, x):
    """Constrains the learner's looked-up x [B, S, D] to the table's cut of D, if its axes cut the rows too.

    Each device looks tokens up in its own part of D, and the result travels; else the table and its whole
    gradient would.
    """
    if self.mesh is None:
      return x
    wide = partial(sharding.wide_axes, self.mesh)
    rows, columns = map(wide, sharding.cut_of(self.mesh, x.shape[0]))
    width = wide(sharding.partition(self.mesh, ["embed"], x.shape[2:], dict(self.rules))[0])
    before = rows[: rows.index(width[0])] if set(width[:1]) & set(rows) else ()
    if columns or not width or rows[len(before) :][: len(width)] != width:
      return x
    for cut in (PartitionSpec(before, None, width), PartitionSpec(before + width)):  # one exchange
      x = jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, cut))
    return x

  def _embed(self, tokens):
    x = self.embedding[...][tokens].astype(self.dtype)
    return x * jnp.asarray(self.spec.embedding_scale, self.dtype)  # rounded as transformers rounds it

  def _final_norm(self, x):
    return rms_norm(x, self.final_norm[...], self.spec.rms_norm_eps, self.spec.norm_offset)

  def _frequencies(self):
    return jnp.asarray(np.stack([rope.frequencies(self.spec.head_dim) for rope in self.spec.ropes]))

  def _view(self, segment, response=None):
    return sequence_view(segment, self._frequencies(), self.mesh, response)

  def _view_of(self, segment, response, longest) -> View | bands.View | kernels.View:
    if self.attention == "reference":
      cut = bands.cut(segment.shape[1], *longest) if longest else None
      if cut and sharding.column_shards(self.mesh, len(segment)) == 1:
        return bands.view(cut, segment, self._frequencies(), response)
      return self._view(segment, response)
    model = self.attention, self.spec, self.mesh, dict(self.rules)
    return kernels.view(*model, segment, self._frequencies(), response)

  def _with_room(self, tokens, segment, routing, counted, response):
    """Appends columns of a segment of their own, so that the rows fill whole blocks of the kernel."""
    B, S = tokens.shape
    extra = kernels.room(self.attention, S, sharding.column_shards(self.mesh, B)) - S
    if not extra:
      return tokens, segment, routing, counted, response

    def behind(x, axis, value):
      width = [(0, extra if i == axis else 0) for i in range(x.ndim)] if x is not None else None
      return None if x is None else jnp.pad(x, width, constant_values=value)

    kept = behind(routing, 2, -1), behind(counted, 1, False), behind(response, 1, 0)
    return behind(tokens, 1, 0), behind(segment, 1, -1), *kept

  def _kinds(self):
    """Returns (window, rotary table) of each layer, to be scanned; None for what all layers share."""
    s, far = self.spec, 2**30
    windows = jnp.asarray([w or far for w in s.windows]) if any(s.windows) else None
    return windows, jnp.asarray(s.rope_of) if len(s.ropes) > 1 else None


def logits(hidden, unembedding, cap: float = 0.0):
  """Returns logits [..., V], accumulated in float32, of hidden [..., D] and unembedding [V, D]."""
  how = dict(preferred_element_type=jnp.float32, precision=head_precision(hidden, unembedding))
  return softcap(jnp.einsum("...d,vd->...v", hidden, unembedding, **how), cap)


def head_precision(hidden, unembedding) -> jax.lax.Precision | None:
  """Returns the precision of products with a head that is wider than what it reads: all of it.

  By default a TPU rounds the float32 of a product to bfloat16.
  """
  return jax.lax.Precision.HIGHEST if hidden.dtype != unembedding.dtype else None


class Model(NamedTuple):
  """The static half of a decoder, that jit can close over.  Parameters travel apart."""

  spec: Spec
  graph: nnx.GraphDef
  axes: dict  # logical axis names, same nested dict as the parameters
  shapes: dict  # jax.ShapeDtypeStruct, same nested dict
  init: object  # PRNG key -> parameters
  lora: Lora | None = None  # adapters, if only they are trained
  rules: sharding.Rules = sharding.RULES  # where the axes lie on a mesh
  attention: str = "reference"  # back end for whole sequences: kernels.BACKENDS
  remat: str = "full"  # what `forward` keeps for the backward pass: a policy of parts.REMAT, or "none"

  def bind(self, params) -> Decoder:
    """Returns the decoder with `params`, which may hold adapters or int8 scales beside the base tree."""
    kinds = "adapters", "scales"
    decoder = nnx.merge(self.graph, {key: value for key, value in params.items() if key not in kinds})
    decoder.beside = nnx.data({path: x for kind in kinds for path, x in params.get(kind, {}).items()})
    decoder.adapter_scale = self.lora.scale if self.lora else 0.0
    decoder.remat, decoder.attention = self.remat, self.attention
    return decoder

  @property
  def trained(self) -> "Lora | Model":
    """Returns the owner of the axes and shapes of the trained parameters."""
    return self.lora or self


def build(
  c: ConfigDict, vocab_size: int, mesh: Mesh | None = None, rules: sharding.Rules = sharding.RULES
) -> Model:
  """Returns the decoder of `config.model`."""
  return from_spec(spec_lib.from_config(c, vocab_size), mesh, rules)


def from_spec(s: Spec, mesh: Mesh | None = None, rules: sharding.Rules = sharding.RULES) -> Model:
  """Returns a model of shapes and axes; `init` (under jit, sharded) allocates the parameters.

  `mesh` is where a mixture will run; dense models and single devices need none.
  """

  def init(key):
    return nnx.to_pure_dict(nnx.split(Decoder(s, mesh, rules, nnx.Rngs(key)))[1])

  graph, abstract = nnx.split(nnx.eval_shape(lambda: Decoder(s, mesh, rules, nnx.Rngs(0))))
  is_variable = lambda leaf: isinstance(leaf, nnx.Variable)

  def axes_of(variable):
    axes = variable.get_metadata()["axes"]
    stacked = len(variable.shape) - len(axes)
    return ("layers",) * stacked + axes

  axes = nnx.to_pure_dict(jax.tree.map(axes_of, abstract, is_leaf=is_variable))
  shapes = nnx.to_pure_dict(abstract)
  return Model(s, graph, axes, shapes, init, rules=rules)
