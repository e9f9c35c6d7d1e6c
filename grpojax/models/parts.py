"""What attention, MLP and mixture are made of."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

ACTIVATIONS = {
  "silu": jax.nn.silu,
  "gelu": partial(jax.nn.gelu, approximate=False),
  "gelu_pytorch_tanh": partial(jax.nn.gelu, approximate=True),
}


def matrix(rngs, axes, shape, scale, dtype):
  """A parameter of `scale` times normal noise; `axes` are the logical axes that sharding.py maps."""
  value = scale * jax.random.normal(rngs.params(), shape, jnp.float32)
  return nnx.Param(value.astype(dtype), axes=axes)


def vector(axes, shape, value, dtype):
  """A parameter that starts constant: the weight of a norm, or a bias."""
  return nnx.Param(jnp.full(shape, value, dtype), axes=axes)


def rms_norm(x, weight, eps, offset=0.0):
  """x / rms(x) * (offset + weight), computed in float32.  [..., D] -> [..., D]."""
  x32 = x.astype(jnp.float32)
  x32 = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + eps)
  return (x32 * jnp.broadcast_to(offset + weight.astype(jnp.float32), x32.shape)).astype(x.dtype)


def softcap(x, cap: float):
  """cap tanh(x / cap): bounded, and near 0 the identity; cap 0 leaves x alone."""
  return cap * jnp.tanh(x / cap) if cap else x


def gated_mlp(h, gate, up, down, activation: str):
  """(act(h gate) * (h up)) down.  h [..., D], gate and up [D, F], down [F, D] -> [..., D]."""
  gate = ACTIVATIONS[activation](h @ gate.astype(h.dtype))
  return (gate * (h @ up.astype(h.dtype))) @ down.astype(h.dtype)
