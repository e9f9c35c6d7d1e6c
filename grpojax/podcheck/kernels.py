"""Kernels that the compiler cannot look into: their FLOPs by formula, from the shapes of their operands."""

import math

from grpojax.podcheck.hlo import Computation, Instruction

TARGETS = ("tpu_custom_call", "__cublas", "__cudnn", "mosaic")


def name(i: Instruction) -> str:
  """What the kernel calls itself; "" for all else."""
  if i.opcode != "custom-call":
    return ""
  target = i.attribute(r'custom_call_target="([^"]*)"') or ""
  if not target.startswith(TARGETS):
    return ""
  return i.attribute(r'kernel_name="?([\w.\-]+)') or (i.attribute(r'op_name="([^"]*)"') or target).split("/")[-1]


def flops(at: Computation, i: Instruction) -> float:
  """Of one call.  Attention counts the pairs that a causal mask leaves; of any other kernel, 0.

  Products of [S, H] by [S, keys]: two forward; five backward, of which a fused kernel does all, and of two
  kernels one does four (dk, dv, scores, dp) and the other three (dq, scores, dp).
  """
  known = name(i).lower()
  if "splash" not in known and "flash" not in known and "attention" not in known:
    return 0.0
  shapes = [at.instructions[n].arrays[0].shape for n in i.operands]
  wide = [s for s in shapes if len(s) >= 3 and s[-1] >= 32 and s[-2] > 1]
  if len(wide) < 2:
    return 0.0
  q, k = wide[0], wide[1]
  pairs = math.prod(q[:-1]) * k[-2]
  products = 4 if "dkv" in known else 3 if "dq" in known else 5 if "bwd" in known else 2
  return 2.0 * products * pairs * q[-1] / 2
