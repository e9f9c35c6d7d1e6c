"""How many slots fit: arithmetic on the caches, so that nothing is found out by running out of memory."""

import jax.numpy as jnp
from jax.sharding import Mesh

from grpojax.models import Spec


def kept_as(kv_cache: str, mesh: Mesh) -> str:
  """Returns how a mesh keeps keys and values: "int8", "full" as they are computed, or "float32" on a CPU.

  A CPU has no slices of bfloat16: XLA would make the whole cache float32 to write a token's column into it,
  and round it again, half of the time of attention.  The numbers are the same.
  """
  return "float32" if kv_cache == "full" and mesh.devices.flat[0].platform == "cpu" else kv_cache


def kv_bytes(spec: Spec, columns: int, tensor: int = 1, kv_cache: str = "full") -> int:
  """Bytes of the keys and values of so many tokens on one device; `tensor` devices share the heads.

  `kv_cache` is of `kept_as`; in int8 a token has a float32 scale for each head.
  """
  heads, H = spec.num_key_value_heads, spec.head_dim
  heads = heads // tensor if heads % tensor == 0 else heads
  of_head = {"int8": H + 4, "float32": 4 * H}.get(kv_cache, H * jnp.dtype(spec.dtype).itemsize)
  return 2 * spec.num_hidden_layers * heads * of_head * columns


def slots(
  spec: Spec,
  *,
  wanted: int,
  prompts: int,
  group_size: int,
  prompt_budget: int,
  max_tokens: int,
  memory_gb: float,
  shards: int = 1,
  tensor: int = 1,
  kv_cache: str = "full",
) -> int:
  """Slots of the whole mesh: at least one a shard of the batch, no more than requests, no more than fit.

  A device holds the KV of its prompts and of its slots' own tokens; `memory_gb` (10^9 bytes, 0: no
  limit) bounds the two.  ValueError if not one slot fits beside the prompts.
  """
  here = prompts // shards
  own = min(-(-wanted // shards), here * group_size)
  if memory_gb:
    of_prompts = here * kv_bytes(spec, prompt_budget, tensor, kv_cache)
    of_slot = kv_bytes(spec, ring(max_tokens), tensor, kv_cache)
    own = min(own, int((memory_gb * 1e9 - of_prompts) // of_slot))
    if own < 1:
      raise ValueError(
        f"config.rollout.kv_memory_gb = {memory_gb} does not hold one slot: {here} prompts on a device take "
        f"{of_prompts / 1e9:.3g} GB and a slot {of_slot / 1e9:.3g} GB; raise it, or lower config.rollout."
      )
  return own * shards


def ring(max_tokens: int) -> int:
  """Columns of a slot's own tokens but the last, in whole vectors of a TPU if there are several.

  Between programs an array lies as takes the least memory, in a loop as is read best: that is the same
  only where nothing is padded, and else all rings would be copied where a loop begins.
  """
  lanes = 128 if max_tokens > 128 else 1
  return max(-(-(max_tokens - 1) // lanes) * lanes, 1)
