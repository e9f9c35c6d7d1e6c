"""Hidden states -> log-probs of the chosen tokens and entropies, chunk by chunk.

Logits of only `chunk` columns exist at once: `[B, T, V]` is built neither forward nor backward.  The
derivative is by hand: with p = softmax(z), dz = g (1[chosen] - p) - g' p (log p + entropy), g and g' the
cotangents of the two outputs.  Each pass makes a chunk's logits once and exponentiates them once.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from grpojax import models
from grpojax.runtime import sharding

OUTSIDE = -1e30  # a logit without probability that no sum turns into NaN


def token_logprobs(
  hidden, unembedding, targets, *, temperature: float, chunk: int, cap: float = 0.0, wanted=None,
  kept=None, mesh: Mesh | None = None,
):  # fmt: skip
  """Returns logp and entropy, both [B, T] float32, of hidden [B, T, D] and targets [B, T].

  `unembedding` is [V, D].  Both are those of softmax(logits / temperature), in nats; the temperature is the
  sampler's, so that ratios compare like with like, and so is `kept` [B, T, K]: the tokens that the softmax
  is over, with -1 behind them; all -1, or None: the whole vocabulary.  `cap` is the model's soft-cap of
  logits, 0: none.  Chunks that begin at column `wanted` [] or behind it are 0 and not computed; None: all are
  wanted.
  On a mesh each device has its own rows and columns of every chunk, and adds up its own part of the head's
  gradient.
  """
  B, T, D = hidden.shape
  chunks, size = cut(T, chunk, sharding.column_shards(mesh, B))
  pad = chunks * size - T
  hidden = jnp.pad(hidden, ((0, 0), (0, pad), (0, 0))).reshape(B, chunks, size, D)
  targets = jnp.pad(targets, ((0, 0), (0, pad))).reshape(B, chunks, size)
  asked = jnp.int32(chunks if wanted is None else -(-wanted // size))
  if kept is not None:
    kept = jnp.pad(kept, ((0, 0), (0, pad), (0, 0)), constant_values=-1)
    kept = kept.reshape(B, chunks, size, -1).swapaxes(0, 1)
  run = _on_mesh(mesh, B, lambda *args: _by_chunk(*args, temperature, cap))
  outs = run(hidden.swapaxes(0, 1), unembedding, targets.swapaxes(0, 1), kept, asked)
  return tuple(o.swapaxes(0, 1).reshape(B, chunks * size)[:, :T] for o in outs)


def cut(columns: int, chunk: int, shards: int = 1) -> tuple[int, int]:
  """Returns (number of chunks, their size): equal, at most `chunk` columns, whole shards; little padding."""
  chunks = -(-columns // chunk)
  return chunks, -(-columns // (chunks * shards)) * shards


def _on_mesh(mesh: Mesh | None, rows: int, run):
  """Returns the loop over chunks for each device's own rows and columns of them.

  What cuts the head is left to the compiler.  Under the compiler alone the head's gradient would be summed
  over all devices once per chunk.
  """
  if not mesh:
    return run
  rows, columns = (sharding.wide_axes(mesh, cut) for cut in sharding.cut_of(mesh, rows))
  if not rows + columns:
    return run
  cut = PartitionSpec(None, rows or None, columns or None)
  specs = cut, PartitionSpec(), cut, cut, PartitionSpec()
  return jax.shard_map(
    run, mesh=mesh, in_specs=specs, out_specs=(cut, cut), axis_names={*rows, *columns}, check_vma=False
  )


@partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def _by_chunk(hidden, unembedding, targets, kept, asked, temperature, cap):
  """Returns logp, entropy [chunks, B, C] of hidden [chunks, B, C, D]; 0 from chunk `asked` [] on."""
  return _forward(hidden, unembedding, targets, kept, asked, temperature, cap)[0]


def _forward(hidden, unembedding, targets, kept, asked, temperature, cap):
  """Returns (logp, entropy), and what the backward pass needs: no logits."""

  def compute(i, outs):
    z_BCV = _within(models.logits(hidden[i], unembedding, cap) / temperature, kept, i)
    top = z_BCV.max(axis=-1, keepdims=True)
    below = z_BCV - top
    exp = jnp.exp(below)
    total = exp.sum(axis=-1)
    chosen = jnp.take_along_axis(z_BCV, targets[i][..., None], axis=-1)[..., 0] - top[..., 0]
    entropy = jnp.log(total) - (exp * below).sum(axis=-1) / total  # neither term negative: none cancels
    found = chosen - jnp.log(total), entropy, top[..., 0] + jnp.log(total)
    return tuple(o.at[i].set(x) for o, x in zip(outs, found, strict=True))

  outs = (jnp.zeros(targets.shape, jnp.float32),) * 3
  with jax.named_scope("head"):
    logp, entropy, normaliser = jax.lax.fori_loop(0, asked, compute, outs)
  return (logp, entropy), (hidden, unembedding, targets, kept, asked, normaliser, entropy)


def _within(z_BCV, kept, i):
  """Returns chunk i's logits, far below all others outside of what was `kept` [chunks, B, C, K]."""
  if kept is None:
    return z_BCV
  B, C, V = z_BCV.shape
  tokens = jnp.where(kept[i] < 0, V, kept[i])  # V is none, and dropped
  row, column = jnp.arange(B)[:, None, None], jnp.arange(C)[None, :, None]
  inside = jnp.zeros((B, C, V), bool).at[row, column, tokens].set(True, mode="drop")
  everything = (kept[i] < 0).all(axis=-1, keepdims=True)
  return jnp.where(inside | everything, z_BCV, OUTSIDE)


def _backward(temperature, cap, residuals, cotangents):
  hidden, unembedding, targets, kept, asked, *rest = residuals
  column = jnp.arange(unembedding.shape[0])[None, None]
  how = dict(preferred_element_type=jnp.float32, precision=models.head_precision(hidden, unembedding))

  def compute(i, sums):
    d_hidden, d_unembedding = sums
    each = (x[i][..., None] for x in (targets, *rest, *cotangents))  # [B, C, 1]
    target, normaliser, entropy, d_logp, d_entropy = each
    z_BCV = models.logits(hidden[i], unembedding, cap) / temperature
    logp = _within(z_BCV, kept, i) - normaliser
    dz = jnp.where(column == target, d_logp, 0.0) - jnp.exp(logp) * (d_logp + d_entropy * (logp + entropy))
    if cap:
      dz = dz * (1 - (z_BCV * (temperature / cap)) ** 2)
    dz = (dz / temperature).astype(unembedding.dtype)
    d_h = jnp.einsum("bcv,vd->bcd", dz, unembedding, **how)
    d_unembedding += jnp.einsum("bcd,bcv->dv", hidden[i], dz, **how)
    return d_hidden.at[i].set(d_h.astype(hidden.dtype)), d_unembedding

  sums = jnp.zeros_like(hidden), jnp.zeros(unembedding.shape[::-1], jnp.float32)
  with jax.named_scope("head"):
    d_hidden, d_unembedding = jax.lax.fori_loop(0, asked, compute, sums)
  return d_hidden, d_unembedding.T.astype(unembedding.dtype), None, None, None


_by_chunk.defvjp(_forward, _backward)
