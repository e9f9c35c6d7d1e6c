"""Weights, norms and products that attention, MLP and mixture are made of."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

ACTIVATIONS = {
  "silu": jax.nn.silu,
  "gelu": partial(jax.nn.gelu, approximate=False),
  "gelu_pytorch_tanh": partial(jax.nn.gelu, approximate=True),
}


# What a block keeps for its backward pass, by the name of the policy; all else is computed again.
REMAT = {
  "full": (),
  "attention": ("attention", "norm"),
  "qkv": ("attention", "norm", "qkv"),
  "projections": ("attention", "norm", "projection"),
}


def rematerialised(block, policy: str):
  """Returns the block under a policy of REMAT, or unchanged for "none"; it is the body of a scan."""
  if policy == "none":
    return block
  keep = jax.checkpoint_policies.save_only_these_names(*REMAT[policy])
  return jax.checkpoint(block, policy=keep, prevent_cse=False)  # a scan keeps the passes apart


def matrix(rngs, axes, shape, scale, dtype):
  """Makes a parameter of `scale` times normal noise; `axes` are the logical axes that sharding.py maps."""
  value = scale * jax.random.normal(rngs.params(), shape, jnp.float32)
  return nnx.Param(value.astype(dtype), axes=axes)


def vector(axes, shape, value, dtype):
  """Makes a parameter that starts constant: the weight of a norm, or a bias."""
  return nnx.Param(jnp.full(shape, value, dtype), axes=axes)


def rms_norm(x, weight, eps, offset=0.0):
  """Returns x / rms(x) * (offset + weight), computed in float32.  [..., D] -> [..., D]."""
  x32 = x.astype(jnp.float32)
  x32 = x32 * checkpoint_name(jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + eps), "norm")
  return (x32 * jnp.broadcast_to(offset + weight.astype(jnp.float32), x32.shape)).astype(x.dtype)


def softcap(x, cap: float):
  """Returns cap tanh(x / cap): bounded, and near 0 the identity; cap 0 returns x."""
  return cap * jnp.tanh(x / cap) if cap else x


def gated_mlp(h, gate, up, down, activation: str):
  """Returns (act(h gate) * (h up)) down.  h [..., D], gate and up [D, F], down [F, D] -> [..., D]."""
  return project(ACTIVATIONS[activation](project(h, gate)) * project(h, up), down)


def project(x, weight, axes: int = 1):
  """Multiplies x [..., *in] by weight [*in, *out], where `in` has `axes` axes -> [..., *out], in x's dtype.

  `weight` may be a tuple of its pieces (`in_pieces`).
  """
  if isinstance(weight, tuple):
    return _by_piece(x, weight, axes)
  return checkpoint_name(_dot(x, weight.astype(x.dtype), axes), "projection")


def in_pieces(weight, axis: int, least: int):
  """Cuts the matrix along an axis into a tuple of at least `least` equal pieces, each of whole TPU vectors.

  A token's products read every matrix once.  The TPU's compiler reads a matrix that fits its prefetch at
  the memory's full pace, and a larger one at what it estimates as two thirds of that pace.
  """
  vectors, rest = divmod(weight.shape[axis], 128)
  number = 1 if rest else pieces_of(vectors, least)
  return tuple(jnp.split(weight, number, axis)) if number > 1 else weight


def pieces_of(units: int, least: int) -> int:
  """Returns the smallest divisor of `units` that is at least `least`, or `units`."""
  return next((n for n in range(least, units) if units % n == 0), units)


def _by_piece(x, pieces, axes: int):
  """Multiplies piece by piece: outputs are concatenated; for a cut input the products add up in float32."""
  if pieces[0].shape[:axes] == x.shape[x.ndim - axes :]:
    return jnp.concatenate([jnp.tensordot(x, piece, axes) for piece in pieces], axis=-1)
  xs = jnp.split(x, len(pieces), axis=-axes)
  dots = [
    jnp.tensordot(a, piece, axes, preferred_element_type=jnp.float32)
    for a, piece in zip(xs, pieces, strict=True)
  ]
  return sum(dots).astype(x.dtype)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _dot(x, weight, axes):
  """Returns the dot product with gradients whose operands lie as they are: autodiff's makes XLA transpose."""
  return _product(x, weight, axes)


def _dot_backward(axes, operands, ct):
  x, weight = operands
  lead, out = list(range(x.ndim - axes)), list(range(axes - weight.ndim, 0))
  return _product(ct, weight, (out, out)), _product(x, ct, (lead, lead))


def _product(x, y, axes):
  """Returns jnp.tensordot(x, y, axes) in their dtype, summed in float32.

  A CPU with matrix units (AMX) uses them for bfloat16 only where the product leaves as float32: five times as
  fast there as a product that leaves as bfloat16.  Accelerators round as they write.
  """
  plain = lambda x, y: jnp.tensordot(x, y, axes)
  if x.dtype != jnp.bfloat16:
    return plain(x, y)
  summed = lambda x, y: jnp.tensordot(x, y, axes, preferred_element_type=jnp.float32).astype(x.dtype)
  return jax.lax.platform_dependent(x, y, cpu=summed, default=plain)


_dot.defvjp(lambda x, weight, axes: (_dot(x, weight, axes), (x, weight)), _dot_backward)
