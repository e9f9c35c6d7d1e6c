"""Floating-point operations of a matrix product, two for a multiply and an add; all else counts nothing."""

import math
import re

from grpojax.tools.podcheck.roofline.hlo import Computation, Instruction


def of_instruction(at: Computation, i: Instruction) -> float:
  """Returns FLOPs of one instruction itself, without those of the computations it calls."""
  if i.opcode == "dot":
    return _dot(at, i)
  if i.opcode == "convolution":
    return _convolution(at, i)
  if i.opcode == "ragged-dot":  # each row meets the matrix of its own group only
    left = at.instructions[i.operands[0]].arrays[0]
    return 2.0 * i.arrays[0].size * left.shape[-1]
  return 0.0


def _dot(at: Computation, i: Instruction) -> float:
  left = at.instructions[i.operands[0]].arrays[0]
  summed = (i.attribute(r"lhs_contracting_dims=\{([\d,]*)\}") or "").split(",")
  return 2.0 * i.arrays[0].size * math.prod(left.shape[int(d)] for d in summed if d)


def _convolution(at: Computation, i: Instruction) -> float:
  """Returns FLOPs of a convolution, as TPUs do products; some have a window that only batches them."""
  labels = re.match(r"(\w+)_(\w+)->(\w+)", i.attribute(r"dim_labels=([\w>\-]+)"))
  left, right, out = labels.groups()
  x, y = (at.instructions[name].arrays[0].shape for name in i.operands)
  window = i.attribute(r"window=\{([^}]*)\}") or ""
  groups = int(i.attribute(r"feature_group_count=(\d+)") or 1)
  batches = int(i.attribute(r"batch_group_count=(\d+)") or 1)
  pairs = 1
  for n, label in enumerate(sorted(c for c in out if c.isdigit())):
    sizes = x[left.index(label)], y[right.index(label)], i.arrays[0].shape[out.index(label)]
    pairs *= _pairs(*sizes, *_of_dimension(window, n))
  features = x[left.index("f")] // groups * y[right.index("o")]
  return 2.0 * features * (x[left.index("b")] // batches) * pairs


def _of_dimension(window: str, n: int) -> tuple[int, int, int, int]:
  """Returns stride, padding in front, dilation of the input, dilation of the kernel."""
  field = re.findall(r"(\w+)=([\dx_\-]+)", window)
  field = {key: value.split("x")[n] for key, value in field}
  stride, low = int(field.get("stride", 1)), int(field.get("pad", "0_0").split("_")[0])
  return stride, low, int(field.get("lhs_dilate", 1)), int(field.get("rhs_dilate", 1))


def _pairs(size: int, kernel: int, out: int, stride: int, low: int, spread: int, reach: int) -> int:
  """Counts pairs of an output and a kernel element that meet an element of the input, not padding."""
  count = 0
  for k in range(kernel):
    first = k * reach - low  # the input position of output 0; a multiple of `spread` is an element
    if stride % spread == 0 and first % spread:
      continue
    positions = range(first, first + out * stride, stride)
    count += sum(p % spread == 0 and 0 <= p // spread < size for p in positions)
  return count
