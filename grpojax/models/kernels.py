"""Attention of whole sequences by an accelerator's own kernel, where there is one for the model.

Every back end computes the same as `attention.attend`, against which tests compare it, and never holds a
score for each pair of columns: "splash" is JAX's Pallas kernel for TPUs (forward and backward; blocks that
the mask leaves empty are skipped), "cudnn" is NVIDIA's through `jax.nn`.  Both run on each device's own rows
and heads, under `shard_map`.

Splash needs no mask of whole segments.  A prompt with several responses behind it is no such segment: then
both kernels read a mask, a byte or two for each pair of columns, of which splash skips the empty blocks too.

Only `Decoder.forward` reads whole sequences; prompts that are sampled from and single tokens are read by
the reference, whose caches have layouts of their own.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.pallas.ops.tpu import splash_attention
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from grpojax.models import bands
from grpojax.models.attention import angles, positions, rotate, rotate_by_product, sequence_view
from grpojax.models.spec import Spec
from grpojax.runtime import sharding

BACKENDS = ("reference", "splash", "cudnn")
PLATFORMS = {"splash": "a TPU", "cudnn": "an NVIDIA GPU"}
BLOCKS = (2048, 1024, 512, 256, 128)  # columns of keys that splash reads at a time
QUERIES = 1024  # at most; scores are computed of half as many keys at a time: benchmarks/attention.py
PAIR = 2  # cuDNN's backward pass through a mask takes even numbers of columns only
MASKED = 8192  # columns of a row at most, where a choice needs a mask: `mask_bytes`
# What a pair of a mask costs, in FLOPs of a forward pass, by programs for a v5e; cuDNN has masks in any case.
MASK_FLOPS = {"reference": 0, "cudnn": 0, "splash": 500}
MASKED_SCOPE = "masked_attention"  # by which podcheck knows kernels that skip blocks which only data tells
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


def keys_scored(backend: str, columns: int, prompt: float, response: float, shared: bool, longest):
  """Returns how many keys attention scores for a token of a prompt, and of a response to it, on average.

  Of rows of `columns`, whose blocks up to the diagonal all are scored; cuDNN takes 3/4 of the time of all.
  Splash skips the blocks of other sequences where it reads a mask, as `shared` prompts need it; the reference
  scores what a prompt and a response that are as long as `longest` need.
  """
  if backend == "splash" and shared:
    begun = block(columns) / 2  # blocks of which a token sees a part: at its prompt's end and its own
    return prompt / 2 + begun, prompt + response / 2 + 2 * begun
  if backend == "reference":
    return (bands.keys_scored(columns, *longest),) * 2
  keys = columns * {"splash": 1 / 2, "cudnn": 3 / 4}[backend]
  return keys, keys


def mask_bytes(backend: str, s: Spec, columns: int) -> int:
  """Returns bytes of a row's masks: bools, and what splash widens of the one window that is read, 2 x 4."""
  of_window, widened = {"splash": (3, 8), "cudnn": (1, 0)}[backend]
  return (of_window * len(windows_of(s)) + widened) * columns**2


def _whole(columns: int, unit: int) -> int:
  return -(-columns // unit) * unit


class View(NamedTuple):
  """Angles, segments and masks of whole sequences for a kernel; as `attention.View`.

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
  masks: tuple = ()  # one for each of `windows_of`, as the back end reads it; none: `segment` says all

  def of(self, window, table):
    """Returns (attention, turn) of a layer; `window`, one of the model's, is traced: layers are scanned."""
    windows = windows_of(self.spec)
    table = 0 if table is None else table

    def attention(q, k, v, scale, cap):
      reads = [partial(self._on_mesh, number, scale=scale, cap=cap) for number in range(len(windows))]
      if len(reads) == 1:
        return reads[0](q, k, v), (k, v)
      number = sum(i * (window == w) for i, w in enumerate(windows) if w)  # 0: no window, whose size is 2**30
      return jax.lax.switch(number, reads, q, k, v), (k, v)

    turn = rotate_by_product if self.backend == "splash" else rotate
    return attention, partial(turn, rope=(self.cos[table], self.sin[table]))

  def _on_mesh(self, number: int, q, k, v, *, scale: float, cap: float):
    """Runs attention on each device for its own rows, columns and heads of queries; all keys travel.

    `number` is the window's.
    """
    mesh, N, K = self.mesh, q.shape[2], k.shape[2]
    heads = sharding.partition(mesh, ["heads"], (N,), self.rules)[0]
    tensor = mesh.shape[heads] if heads else 1
    if K % tensor:  # kv heads that do not divide: as often as it takes
      k, v = (jnp.repeat(x, tensor // K if tensor % K == 0 else N // K, axis=2) for x in (k, v))
    rows, context = sharding.cut_of(mesh, q.shape[0])
    by_columns = NamedSharding(mesh, PartitionSpec(None, context))  # None: rows are whole
    if self.backend == "cudnn":
      mask, of_mask, read = self.masks[number], PartitionSpec(rows, context), cudnn
    elif self.masks:
      mask, read = self.masks[number], read_rows
      of_mask = jax.tree.map(lambda _: PartitionSpec(rows, None, context), mask)  # [B, 1, blocks of S, ...]
    else:
      window = windows_of(self.spec)[number]
      mask = splash(q.shape[1], N // tensor, by_columns, window=window, cap=cap)
      of_mask, read = mask.manual_sharding_spec(by_columns), read_segments
    mine, whole = PartitionSpec(rows, context, heads), PartitionSpec(rows, None, heads)
    specs = of_mask, mine, whole, whole, PartitionSpec(rows, context), PartitionSpec(rows)
    read = jax.shard_map(
      partial(read, scale=scale), mesh=mesh, in_specs=specs, out_specs=mine, check_vma=False
    )
    return read(mask, q, k, v, self.segment, self.segment)


def windows_of(s: Spec) -> list[int]:
  """Returns the sizes of the model's windows, each once; 0 is none."""
  return sorted(set(s.windows))


def view(
  backend: str, s: Spec, mesh: Mesh, rules: sharding.Rules, segment, frequencies, response=None
) -> View:
  """Returns the view that whole sequences have of themselves; as `attention.sequence_view`."""
  if backend == "splash" and response is None:
    return View(backend, s, mesh, rules, segment, *angles(positions(segment), frequencies))
  seen = sequence_view(segment, frequencies, mesh, response)
  masks = [seen.mask & (seen.distance < window) if window else seen.mask for window in windows_of(s)]
  if backend == "splash":
    masks = [splash_of_rows(mask, mesh, s.attention_softcap) for mask in masks]
  return View(backend, s, mesh, rules, segment, seen.cos, seen.sin, tuple(masks))


def splash(columns: int, heads: int, by_columns: NamedSharding, *, window: int, cap: float):
  """Returns the kernel of whole segments, whose mask is causal and known to the compiler."""
  shards = by_columns.mesh.shape["context"] if by_columns.spec[1] else 1
  shape = columns, columns
  mask = splash_attention.CausalMask(shape, shard_count=shards)
  if window:
    mask = splash_attention.LocalMask(shape, (window - 1, 0), 0, shard_count=shards)
  heads = splash_attention.MultiHeadMask([mask] * heads)
  return splash_attention.make_splash_mha(heads, **_splash_options(by_columns.mesh, columns, shards, cap))


def splash_of_rows(mask, mesh: Mesh, cap: float):
  """Returns a kernel for each row, its arrays stacked, by mask [B, S, S] bool, which all heads share."""
  columns = mask.shape[-1]
  options = _splash_options(mesh, columns, sharding.column_shards(mesh, len(mask)), cap)
  kernel = jax.vmap(lambda mask: splash_attention.make_splash_mha(mask[None], **options))(mask)
  kernel = _with_masks(kernel, lambda info: info._replace(is_dynamic_mask=None))  # it would be read as a bool
  return _with_masks(kernel, jax.lax.optimization_barrier)  # or XLA makes the masks anew in every layer


def _with_masks(kernel, change: Callable):
  """Returns splash's kernel with a change of the masks of its three programs."""
  infos = map(change, (kernel.fwd_mask_info, kernel.dq_mask_info, kernel.dkv_mask_info))
  return splash_attention.splash_attention_kernel.SplashAttentionKernel(*infos, **kernel.kwargs)


def _splash_options(mesh: Mesh, columns: int, shards: int, cap: float) -> dict:
  """Returns how splash computes `columns` of keys, with queries cut in `shards`.

  The backward pass is two kernels, which compute the scores twice.  A single kernel would leave gradients
  of the queries for each block of keys: memory quadratic in the length, and as long to add them up.
  """
  keys = block(columns, shards)
  queries, computed = min(keys, QUERIES), min(keys, QUERIES // 2)
  sizes = splash_attention.BlockSizes(
    block_q=queries, block_kv=keys, block_kv_compute=computed,
    block_q_dkv=queries, block_kv_dkv=keys, block_kv_dkv_compute=computed,
    block_q_dq=queries, block_kv_dq=keys, use_fused_bwd_kernel=False,
  )  # fmt: skip
  return dict(
    head_shards=1,
    q_seq_shards=shards,
    block_sizes=sizes,
    attn_logits_soft_cap=cap or None,
    residual_checkpoint_name="attention",  # the outputs and their normalisers, for parts.REMAT
    interpret=mesh.devices.flat[0].platform != "tpu",
  )


def read_segments(kernel, q, k, v, of_q, of_k, *, scale: float):
  """Returns what q [B, S, N, H] reads of k, v [B, columns, K, H] by a kernel of `splash`.

  `of_q` [B, S] and `of_k` [B, columns] are their segments.
  """
  one = lambda q, k, v, *ids: kernel(q, k, v, segment_ids=splash_attention.SegmentIds(*ids))
  q, k, v = _for_splash(q, k, v, scale)
  return jax.vmap(one)(q, k, v, of_q, of_k).swapaxes(1, 2)


def read_rows(kernels, q, k, v, of_q, of_k, *, scale: float):
  """Returns what `read_segments` does, by kernels of `splash_of_rows`: all rows' heads are one kernel's."""
  del of_q, of_k  # the masks know
  B, _, N, _ = q.shape
  kernel = _with_masks(kernels, partial(_joined, heads=N))
  with jax.named_scope(MASKED_SCOPE):
    read = kernel(*(x.reshape(-1, *x.shape[2:]) for x in _for_splash(q, k, v, scale)))
  return read.reshape(B, N, *read.shape[1:]).swapaxes(1, 2)


def _joined(info, heads: int):
  """Returns the mask of all rows' heads, row after row; `info` has arrays [B, 1, blocks, blocks, ...].

  Splash numbers the blocks with a mask of their own through all that it gets.
  """
  B, _, *blocks = info.block_mask.shape
  first = jnp.arange(B)[:, None, None, None] * math.prod(blocks)  # of a row's blocks among those of all
  each = lambda x: jnp.repeat(x[:, 0], heads, axis=0)
  return info._replace(
    data_next=each(info.data_next), block_mask=each(info.block_mask), mask_next=each(first + info.mask_next)
  )


def _for_splash(q, k, v, scale: float):
  k = (k.astype(jnp.float32) * scale).astype(k.dtype)  # of both, the smaller
  return tuple(x.swapaxes(1, 2) for x in (q, k, v))


def cudnn(mask, q, k, v, of_q, of_k, *, scale: float, implementation: str = "cudnn"):
  """Returns what q [B, S, N, H] reads of k, v [B, columns, K, H] through mask [B, S, columns].

  Told that nobody looks ahead, which the mask says too, cuDNN skips blocks: 4.4 ms instead of 6.0 for both
  passes of 2 x 6,144 columns on an H200, 12 heads of 128.  Devices that have a part of the queries cannot.
  """
  del of_q, of_k  # the mask knows
  whole = q.shape[1] == k.shape[1]
  read = jax.nn.dot_product_attention(
    q, k, v, mask=mask[:, None], scale=scale, is_causal=whole, implementation=implementation
  )
  return checkpoint_name(read, "attention")
