"""Kernels that the compiler cannot look into: their FLOPs by formula, from the shapes of their operands."""

import math

from grpojax.tools.podcheck.roofline.hlo import Array, Computation, Instruction

TARGETS = ("tpu_custom_call", "__cublas", "__cudnn", "mosaic")


def name(i: Instruction) -> str:
  """Returns the kernel's own name; "" for any other instruction."""
  if i.opcode != "custom-call":
    return ""
  target = i.attribute(r'custom_call_target="([^"]*)"') or ""
  if not target.startswith(TARGETS):
    return ""
  source = i.attribute(r'op_name="([^"]*)"') or target
  return source.removesuffix("/pallas_call").split("/")[-1]


def flops(at: Computation, i: Instruction) -> float:
  """Returns FLOPs of one call: attention's and a mixture's products; 0 for any other kernel.

  Attention counts the pairs that a causal mask leaves, of queries [..., S, H] and keys; a mixture's products
  count all rows that they have room for, in whole tiles.  Attention forward has two products.  Backward has
  five (scores, dp, dq, dk, dv) in one kernel, or four in the keys' kernel and three in the queries'.
  """
  kernel = name(i).lower()
  if "ragged-dot" in kernel:
    return _ragged(at, i)
  if not any(word in kernel for word in ("splash", "flash", "attention")):
    return 0.0
  arrays = [a for n in i.operands for a in at.instructions[n].arrays if _is_wide(a)]
  if len(arrays) < 2:
    return 0.0
  q, k = (a.shape for a in arrays[:2])
  gradients = sum(_is_wide(a) and len(a.shape) >= len(q) for a in i.arrays)  # others are its scratch
  backward = any(word in kernel for word in ("dkv", "dq", "bwd"))
  products = {1: 3, 2: 4}.get(gradients, 5) if backward else 2
  return products * math.prod(q) * k[-2]  # two for a multiply and an add, half of them masked


def _ragged(at: Computation, i: Instruction) -> float:
  """Returns FLOPs of rows [rows, a] times the matrices [E, a, b] of their groups, or of their gradient.

  A step multiplies a whole tile of rows, and where a group ends within a tile the next begins with it again.
  """
  arrays = [*i.arrays, *(a for n in i.operands for a in at.instructions[n].arrays)]
  floats = [a.shape for a in arrays if a.dtype in ("bf16", "f16", "f32")]
  matrices = next((shape for shape in floats if len(shape) == 3), None)
  rows = next((shape[0] for shape in floats if len(shape) == 2), 0)
  if not matrices:
    return 0.0
  if tile := int(i.attribute(r'ragged_dot_tiling="(\d+)') or 0):
    rows = (-(-rows // tile) + matrices[0] - 1) * tile
  return 2.0 * rows * math.prod(matrices[1:])


def _is_wide(a: Array) -> bool:
  return a.dtype in ("bf16", "f16", "f32") and len(a.shape) >= 3 and a.shape[-1] >= 32 and a.shape[-2] > 1
