"""Attention of whole sequences by an accelerator's own kernel, where there is one for the model.

Every back end computes the same as `attention.attend`, against which tests compare it, and never holds a
score for each pair of columns: "splash" is JAX's Pallas kernel for TPUs (forward and backward; blocks that
the causal mask or a window leaves empty are skipped), "cudnn" is NVIDIA's through `jax.nn`, which does hold
a mask.  Both run on each device's own rows and heads, under `shard_map`.

Only `Decoder.forward` reads whole sequences; prompts that are sampled from and single tokens are read by
the reference, whose caches have layouts of their own.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.pallas.ops.tpu import splash_attention
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from grpojax.models.attention import rotate
from grpojax.models.spec import Spec
from grpojax.runtime import sharding

BACKENDS = ("reference", "splash", "cudnn")
PLATFORMS = {"splash": "a TPU", "cudnn": "an NVIDIA GPU"}
BLOCKS = (2048, 1024, 512, 256, 128)  # columns of keys that splash reads at a time
QUERIES = 1024  # at most; scores are computed of half as many keys at a time: benchmarks/attention.py
PAIR = 2  # cuDNN's backward pass through a mask takes even numbers of columns only
LANES = 128  # of a TPU's vector registers


def choose(wanted: str, s: Spec, mesh: Mesh) -> tuple[str, str]:
  """Returns the attention back end, and why it is not the one of the mesh's platform, or "".

  `wanted` is "auto" or a back end's name.  Raises ValueError if a named back end cannot serve the model.
  """
  device = mesh.devices.flat[0]
  nvidia = device.platform == "gpu" and "NVIDIA" in device.device_kind
  own = "splash" if device.platform == "tpu" else "cudnn" if nvidia else "reference"
  if wanted == "auto":
    why = obstacle(own, s)
    return ("reference", f"{own} cannot serve: {why}") if why else (own, "")
  why = obstacle(wanted, s)
  if not why and wanted not in ("reference", own):
    why = f"it needs {PLATFORMS[wanted]}, and the mesh is of {device.device_kind} devices"
  if why:
    raise ValueError(f"config.attention = '{wanted}' cannot serve: {why}; set 'auto' or 'reference'.")
  return wanted, ""


def obstacle(backend: str, s: Spec) -> str:
  """Returns what about the model a back end cannot do; "" if nothing.

  Splash: nothing known; the TPU's compiler took heads of 16, 36, 64, 80, 128, 256, windows and soft-caps.
  """
  if backend == "cudnn" and s.dtype not in ("bfloat16", "float16"):
    return f"config.model.dtype = '{s.dtype}' is neither 'bfloat16' nor 'float16'"
  if backend == "cudnn" and s.attention_softcap:
    return "the model caps attention scores"
  if backend == "cudnn" and (s.head_dim % 8 or s.head_dim > 128):
    return f"head_dim = {s.head_dim} is no multiple of 8 up to 128"
  return ""


def block(columns: int, shards: int = 1) -> int:
  """Returns the largest of BLOCKS that adds at most a sixteenth of the columns as padding."""
  fits = (b for b in BLOCKS if _whole(columns, b * shards) <= _whole(columns, LANES * shards) * 17 / 16)
  return next(fits)


def room(backend: str, columns: int, shards: int) -> int:
  """Returns the number of columns that a pass over `columns` takes, cut in `shards` of whole blocks."""
  units = {"splash": block(columns, shards), "cudnn": PAIR, "reference": 1}
  return _whole(columns, shards * units[backend])


def _whole(columns: int, unit: int) -> int:
  return -(-columns // unit) * unit


class View(NamedTuple):
  """Angles and segments of whole sequences for a kernel; as `attention.View`, without a mask.

  Layers of different windows each have their kernel, behind a switch, through which parts.REMAT keeps
  nothing: the backward pass computes attention again.
  """

  backend: str
  spec: Spec
  mesh: Mesh
  rules: sharding.Rules
  segment: jax.Array  # [B, S] int32
  cos: jax.Array  # [tables, B, S, H / 2] float32
  sin: jax.Array

  def of(self, window, table):
    """Returns (attention, turn) of a layer; `window`, one of the model's, is traced: layers are scanned."""
    windows = sorted(set(self.spec.windows))
    table = 0 if table is None else table

    def attention(q, k, v, scale, cap):
      read = {"splash": splash, "cudnn": cudnn}[self.backend]
      reads = [partial(self._on_mesh, partial(read, window=w, scale=scale, cap=cap)) for w in windows]
      if len(reads) == 1:
        return reads[0](q, k, v), (k, v)
      number = sum(i * (window == w) for i, w in enumerate(windows) if w)  # 0: no window, whose size is 2**30
      return jax.lax.switch(number, reads, q, k, v), (k, v)

    turn = rotate_by_product if self.backend == "splash" else rotate
    return attention, partial(turn, rope=(self.cos[table], self.sin[table]))

  def _on_mesh(self, read, q, k, v):
    """Runs attention on each device for its own rows, columns and heads of queries; all keys travel."""
    mesh, N, K = self.mesh, q.shape[2], k.shape[2]
    heads = sharding.partition(mesh, ["heads"], (N,), self.rules)[0]
    tensor = mesh.shape[heads] if heads else 1
    if K % tensor:  # kv heads that do not divide: as often as it takes
      k, v = (jnp.repeat(x, tensor // K if tensor % K == 0 else N // K, axis=2) for x in (k, v))
    rows, context = sharding.cut_of(mesh, q.shape[0])
    mine, whole = PartitionSpec(rows, context, heads), PartitionSpec(rows, None, heads)
    by_columns = NamedSharding(mesh, PartitionSpec(None, context))  # None: rows are whole
    kernel, local = read(q.shape[1], N // tensor, by_columns)
    of_kernel = kernel.manual_sharding_spec(by_columns) if kernel else None
    specs = of_kernel, mine, whole, whole, PartitionSpec(rows, context), PartitionSpec(rows)
    cut = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=mine, check_vma=False)
    return cut(kernel, q, k, v, self.segment, self.segment)


def rotate_by_product(x, rope):
  """Returns the numbers of `attention.rotate`, whose halves of heads leave half of a TPU's lanes empty.

  A product with 0, 1 and -1 exchanges the halves instead; the compiler fuses it into its neighbours.
  """
  cos, sin = (jnp.tile(r.astype(x.dtype), 2)[:, :, None] for r in rope)
  exchange = np.kron([[0, 1], [-1, 0]], np.eye(x.shape[-1] // 2)).astype(x.dtype)  # (a, b) -> (-b, a)
  other = jnp.matmul(x, exchange, precision="highest")  # exact also in float32
  return x * jnp.broadcast_to(cos, x.shape) + other * jnp.broadcast_to(sin, x.shape)


def splash(columns: int, heads: int, by_columns: NamedSharding, *, window: int, scale: float, cap: float):
  """Returns (kernel, local): local(kernel, q [B, S, N, H], k, v [B, columns, K, H], their segments) -> as q.

  The backward pass is two kernels, which compute the scores twice.  A single kernel would leave gradients
  of the queries for each block of keys: memory quadratic in the length, and as long to add them up.
  """
  shards = _column_shards(by_columns)
  keys = block(columns, shards)
  queries, computed = min(keys, QUERIES), min(keys, QUERIES // 2)
  sizes = splash_attention.BlockSizes(
    block_q=queries, block_kv=keys, block_kv_compute=computed,
    block_q_dkv=queries, block_kv_dkv=keys, block_kv_dkv_compute=computed,
    block_q_dq=queries, block_kv_dq=keys, use_fused_bwd_kernel=False,
  )  # fmt: skip
  shape = columns, columns
  mask = splash_attention.CausalMask(shape, shard_count=shards)
  if window:
    mask = splash_attention.LocalMask(shape, (window - 1, 0), 0, shard_count=shards)
  kernel = splash_attention.make_splash_mha(
    splash_attention.MultiHeadMask([mask] * heads),
    head_shards=1,
    q_seq_shards=shards,
    block_sizes=sizes,
    attn_logits_soft_cap=cap or None,
    residual_checkpoint_name="attention",  # the outputs and their normalisers, for parts.REMAT
    interpret=by_columns.mesh.devices.flat[0].platform != "tpu",
  )

  def local(kernel, q, k, v, of_q, of_k):
    one = lambda q, k, v, *ids: kernel(q, k, v, segment_ids=splash_attention.SegmentIds(*ids))
    k = (k.astype(jnp.float32) * scale).astype(k.dtype)  # of both, the smaller
    return jax.vmap(one)(*(x.swapaxes(1, 2) for x in (q, k, v)), of_q, of_k).swapaxes(1, 2)

  return kernel, local


def _column_shards(by_columns: NamedSharding) -> int:
  return by_columns.mesh.shape["context"] if by_columns.spec[1] else 1


def cudnn(
  columns: int, heads: int, by_columns: NamedSharding, *, window: int, scale: float, cap: float,
  implementation: str = "cudnn",
):  # fmt: skip
  """Returns (None, local), local as that of `splash`: cuDNN has no kernel object to hand over."""
  del heads, cap  # 0: see `obstacle`

  def local(_, q, k, v, of_q, of_k):
    S = q.shape[1]
    first = jax.lax.axis_index("context") * S if _column_shards(by_columns) > 1 else 0
    distance = first + jnp.arange(S)[:, None] - jnp.arange(columns)[None]
    near = (distance >= 0) & (distance < (window or columns))
    mask = near[None] & (of_q[:, :, None] == of_k[:, None, :])
    read = jax.nn.dot_product_attention(
      q, k, v, mask=mask[:, None], scale=scale, implementation=implementation
    )
    return checkpoint_name(read, "attention")

  return None, local
