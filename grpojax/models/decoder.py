"""A Qwen2.5 decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

Flax NNX used functionally: `build` splits the module once into a static graph and a plain nested dict
of parameters; jit, scan, grad and checkpoint are JAX's own.  Layers are stacked on their first axis
and scanned, so that compile time does not grow with depth; only the decode loop unrolls them, because
a scanned KV cache would be copied at every token.

Sequences are left-padded: the last columns are the newest tokens, and `first [B]` names the first
real column of each row.  Every parameter carries the logical axes that `sharding.py` maps to a mesh.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from ml_collections import ConfigDict

from grpojax.models.attention import attend, causal_mask, rotate

Cache = list[tuple[jax.Array, jax.Array]]  # per layer: keys, values [B, S, K, head_dim]


def _param(rngs, axes, shape, scale):
  value = scale * jax.random.normal(rngs.params(), shape, jnp.float32)
  return nnx.Param(value, axes=axes)


def rms_norm(x, weight, eps):
  """x / rms(x) * weight, computed in float32.  [..., D] -> [..., D]."""
  x32 = x.astype(jnp.float32)
  x32 = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + eps)
  return (x32 * jnp.broadcast_to(weight, x32.shape)).astype(x.dtype)


class Block(nnx.Module):
  """Attention, then SwiGLU, each on the normalised residual stream."""

  def __init__(self, c: ConfigDict, rngs: nnx.Rngs):
    D, N, K, H = c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim
    F = c.intermediate_size
    out_scale = (2 * c.num_hidden_layers) ** -0.5  # keeps the residual's variance flat in depth
    self.eps = c.rms_norm_eps
    self.attention_norm = nnx.Param(jnp.ones(D), axes=("embed",))
    self.q = _param(rngs, ("embed", "heads", None), (D, N, H), D**-0.5)
    self.k = _param(rngs, ("embed", "kv_heads", None), (D, K, H), D**-0.5)
    self.v = _param(rngs, ("embed", "kv_heads", None), (D, K, H), D**-0.5)
    if c.attention_bias:
      self.q_bias = nnx.Param(jnp.zeros((N, H)), axes=("heads", None))
      self.k_bias = nnx.Param(jnp.zeros((K, H)), axes=("kv_heads", None))
      self.v_bias = nnx.Param(jnp.zeros((K, H)), axes=("kv_heads", None))
    self.o = _param(rngs, ("heads", None, "embed"), (N, H, D), out_scale * (N * H) ** -0.5)
    self.mlp_norm = nnx.Param(jnp.ones(D), axes=("embed",))
    self.gate = _param(rngs, ("embed", "mlp"), (D, F), D**-0.5)
    self.up = _param(rngs, ("embed", "mlp"), (D, F), D**-0.5)
    self.down = _param(rngs, ("mlp", "embed"), (F, D), out_scale * F**-0.5)

  def __call__(self, x, rope, mask, cache=None, column=None):
    """x [B, S, D], mask [B, S, keys] -> x, (keys, values): this call's, or the cache written at `column`."""
    h = rms_norm(x, self.attention_norm[...], self.eps)
    q, k, v = (self._project(h, name) for name in "qkv")
    q, k = rotate(q, rope), rotate(k, rope)
    if cache is not None:
      k = jax.lax.dynamic_update_slice_in_dim(cache[0], k, column, axis=1)
      v = jax.lax.dynamic_update_slice_in_dim(cache[1], v, column, axis=1)
    x = x + jnp.einsum("bsnh,nhd->bsd", attend(q, k, v, mask), self.o[...].astype(x.dtype))

    h = rms_norm(x, self.mlp_norm[...], self.eps)
    gate = jax.nn.silu(h @ self.gate[...].astype(x.dtype))
    x = x + (gate * (h @ self.up[...].astype(x.dtype))) @ self.down[...].astype(x.dtype)
    return x, (k, v)

  def _project(self, h, name):
    y = jnp.einsum("bsd,dnh->bsnh", h, getattr(self, name)[...].astype(h.dtype))
    if hasattr(self, f"{name}_bias"):
      y = y + getattr(self, f"{name}_bias")[...].astype(h.dtype)[None, None]
    return y


class Decoder(nnx.Module):
  """Token ids -> hidden states; `unembedding` turns those into logits, chunk by chunk, elsewhere."""

  def __init__(self, c: ConfigDict, vocab_size: int, rngs: nnx.Rngs):
    self.dtype = jnp.dtype(c.dtype)
    self.head_dim, self.rope_theta, self.eps = c.head_dim, c.rope_theta, c.rms_norm_eps
    self.num_layers = c.num_hidden_layers
    shape = (vocab_size, c.hidden_size)
    self.embedding = _param(rngs, ("vocab", "embed"), shape, 0.02)
    self.layers = jax.vmap(lambda key: Block(c, nnx.Rngs(key)))(
        jax.random.split(rngs.params(), c.num_hidden_layers)
    )
    self.final_norm = nnx.Param(jnp.ones(c.hidden_size), axes=("embed",))
    if not c.tie_word_embeddings:
      self.head = _param(rngs, ("vocab", "embed"), shape, c.hidden_size**-0.5)

  def __call__(self, tokens, first):
    """tokens [B, S] int32, first [B] -> hidden [B, S, D] after the final norm.  Rematerialised."""
    positions, mask = _positions_and_mask(tokens.shape[1], first)
    rope = self._rope(positions)
    block = jax.checkpoint(lambda x, layer: (layer(x, rope, mask)[0], None))
    x, _ = jax.lax.scan(block, self._embed(tokens), self.layers)
    return rms_norm(x, self.final_norm[...], self.eps)

  def prefill(self, tokens, first, cache_length: int):
    """tokens [B, L] -> hidden of the last column [B, D], and a cache with room for `cache_length`."""
    positions, mask = _positions_and_mask(tokens.shape[1], first)
    rope = self._rope(positions)
    block = lambda x, layer: layer(x, rope, mask)  # noqa: E731
    x, (keys, values) = jax.lax.scan(block, self._embed(tokens), self.layers)
    room = ((0, 0), (0, cache_length - tokens.shape[1]), (0, 0), (0, 0))
    cache = [(jnp.pad(k, room), jnp.pad(v, room)) for k, v in zip(keys, values, strict=True)]
    return rms_norm(x[:, -1], self.final_norm[...], self.eps), cache

  def decode(self, layers, tokens, column, first, cache: Cache):
    """One token per row, tokens [B], all at the same cache column -> hidden [B, D], cache.

    `layers` comes from `unstacked_layers`, called once outside the decode loop.
    """
    positions = (column - first)[:, None]
    keys = jnp.arange(cache[0][0].shape[1])[None, None, :]
    mask = (keys >= first[:, None, None]) & (keys <= column)
    x, rope, written = self._embed(tokens[:, None]), self._rope(positions), []
    for layer, kv in zip(layers, cache, strict=True):
      x, kv = layer(x, rope, mask, kv, column)
      written.append(kv)
    return rms_norm(x[:, 0], self.final_norm[...], self.eps), written

  def unstacked_layers(self) -> list[Block]:
    """The layers one by one, matrices already in the compute dtype (norms stay float32)."""
    cast = lambda a: a.astype(self.dtype) if a.ndim > 2 else a  # noqa: E731
    layers = jax.tree.map(cast, self.layers)
    return [jax.tree.map(lambda a, i=i: a[i], layers) for i in range(self.num_layers)]

  def unembedding(self):
    """[V, D], in the compute dtype; logits are accumulated in float32 wherever they are made."""
    weight = self.head if hasattr(self, "head") else self.embedding
    return weight[...].astype(self.dtype)

  def _embed(self, tokens):
    return self.embedding[...][tokens].astype(self.dtype)

  def _rope(self, positions):
    half = jnp.arange(0, self.head_dim, 2, dtype=jnp.float32) / self.head_dim
    angles = positions[..., None].astype(jnp.float32) * (self.rope_theta**-half)[None, None]
    return jnp.cos(angles), jnp.sin(angles)


def _positions_and_mask(length, first):
  positions = jnp.maximum(jnp.arange(length)[None] - first[:, None], 0)
  return positions, causal_mask(length, first)


class Model(NamedTuple):
  """The static half of a decoder: hashable, so that jit can close over it.  Parameters travel apart."""

  graph: nnx.GraphDef
  axes: dict  # logical axis names, same nested dict as the parameters
  shapes: dict  # jax.ShapeDtypeStruct, same nested dict
  init: object  # PRNG key -> parameters

  def bind(self, params) -> Decoder:
    return nnx.merge(self.graph, params)


def build(c: ConfigDict, vocab_size: int) -> Model:
  """Shapes and axes only; nothing is allocated before `init` is called (under jit, sharded)."""

  def init(key):
    return nnx.to_pure_dict(nnx.split(Decoder(c, vocab_size, nnx.Rngs(key)))[1])

  graph, abstract = nnx.split(nnx.eval_shape(lambda: Decoder(c, vocab_size, nnx.Rngs(0))))
  is_variable = lambda leaf: isinstance(leaf, nnx.Variable)  # noqa: E731

  def axes_of(variable):
    axes = variable.get_metadata()["axes"]
    stacked = len(variable.shape) - len(axes)
    return ("layers",) * stacked + axes

  axes = nnx.to_pure_dict(jax.tree.map(axes_of, abstract, is_leaf=is_variable))
  shapes = nnx.to_pure_dict(abstract)
  return Model(graph, axes, shapes, init)
