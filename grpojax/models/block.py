"""One layer of the decoder: attention, then a gated MLP or a mixture."""

from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh

from grpojax.models.moe import Mixture
from grpojax.models.parts import gated_mlp, matrix, project, rms_norm, vector
from grpojax.models.spec import Spec
from grpojax.runtime import sharding


class Block(nnx.Module):
  """Attention, then the MLP, each on the normalised residual stream."""

  def __init__(self, s: Spec, mesh: Mesh | None, rules: sharding.Rules, rngs: nnx.Rngs):
    D, N, K, H = s.hidden_size, s.num_attention_heads, s.num_key_value_heads, s.head_dim
    F, dtype = s.intermediate_size, s.param_dtype
    norm = lambda axes, shape: vector(axes, shape, 1.0 - s.norm_offset, dtype)
    out_scale = (2 * s.num_hidden_layers) ** -0.5  # keeps the residual's variance flat in depth
    self.spec = s
    self.attention_norm = norm(("embed",), D)
    self.q = matrix(rngs, ("embed", "heads", None), (D, N, H), D**-0.5, dtype)
    self.k = matrix(rngs, ("embed", "kv_heads", None), (D, K, H), D**-0.5, dtype)
    self.v = matrix(rngs, ("embed", "kv_heads", None), (D, K, H), D**-0.5, dtype)
    if s.qkv_bias:
      self.q_bias = vector(("heads", None), (N, H), 0.0, dtype)
      self.k_bias = vector(("kv_heads", None), (K, H), 0.0, dtype)
      self.v_bias = vector(("kv_heads", None), (K, H), 0.0, dtype)
    if s.qk_norm:
      self.q_norm, self.k_norm = norm((None,), H), norm((None,), H)
    self.o = matrix(rngs, ("heads", None, "embed"), (N, H, D), out_scale * (N * H) ** -0.5, dtype)
    if s.o_bias:
      self.o_bias = vector(("embed",), D, 0.0, dtype)
    self.mlp_norm = norm(("embed",), D)
    if s.post_norms:
      self.post_attention_norm, self.post_mlp_norm = norm(("embed",), D), norm(("embed",), D)
    if s.moe:
      self.moe = Mixture(s, mesh, rngs, rules)
    else:
      self.gate = matrix(rngs, ("embed", "mlp"), (D, F), D**-0.5, dtype)
      self.up = matrix(rngs, ("embed", "mlp"), (D, F), D**-0.5, dtype)
      self.down = matrix(rngs, ("mlp", "embed"), (F, D), out_scale * F**-0.5, dtype)

  def __call__(self, x, attention, turn, replay=None, counted=None):
    """Returns x [B, S, D], what attention keeps (keys and values), and Routed or None.

    attention(q, k, v, scale, cap) returns its output [B, S, N, H] and what it keeps: only it knows caches;
    turn is the rotary embedding.
    """
    s = self.spec
    h = self._norm(x, self.attention_norm)
    q, k, v = (self._project(h, name) for name in "qkv")
    if s.qk_norm:
      q, k = self._norm(q, self.q_norm), self._norm(k, self.k_norm)
    q, k, v = (checkpoint_name(a, "qkv") for a in (turn(q), turn(k), v))
    h, kept = attention(q, k, v, s.query_scale or s.head_dim**-0.5, s.attention_softcap)
    h = project(h, self.o.get_value(), axes=2)
    if s.o_bias:
      h = h + self.o_bias[...].astype(x.dtype)[None, None]
    x = x + (self._norm(h, self.post_attention_norm) if s.post_norms else h)

    h, routed = self._norm(x, self.mlp_norm), None
    if s.moe:
      h, routed = self.moe(h, replay, counted)
    else:
      h = gated_mlp(h, *(w.get_value() for w in (self.gate, self.up, self.down)), s.activation)
    x = x + (self._norm(h, self.post_mlp_norm) if s.post_norms else h)
    return x, kept, routed

  def _norm(self, x, weight):
    return rms_norm(x, weight[...], self.spec.rms_norm_eps, self.spec.norm_offset)

  def _project(self, h, name):
    y = project(h, getattr(self, name).get_value())
    if self.spec.qkv_bias:
      y = y + getattr(self, f"{name}_bias")[...].astype(h.dtype)[None, None]
    return y
