"""Bytes that an instruction reads from and writes to a device's main memory."""

from grpojax.tools.podcheck.roofline.hlo import Array, Computation, Instruction, Module

FREE = {
  "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call", "iota",
  "after-all", "partition-id", "replica-id", "optimization-barrier", "async-update", "async-start", "domain",
  "add-dependency",
}  # fmt: skip
FREE_CALLS = {"AllocateBuffer", "ConcatBitcast", "NopReturnToken"}  # a TPU's: room, a name, an order
PART = {"dynamic-slice", "slice", "gather"}  # read no more than they return


def of_instruction(module: Module, at: Computation, i: Instruction) -> float:
  """Returns bytes of operands and results in main memory; of slices and updates in place, their part only."""
  if i.opcode in FREE or i.opcode.endswith("-done"):
    return 0.0
  if i.opcode == "custom-call" and i.attribute(r'custom_call_target="([^"]*)"') in FREE_CALLS:
    return 0.0
  if i.opcode == "fusion":
    return _fusion(module, at, i)
  if i.opcode == "copy-start":  # the second array is what is copied, the first its copy
    return sum(main(a) for a in i.arrays[:2])
  operands = [at.instructions[name] for name in i.operands]
  written = sum(map(main, i.arrays))
  if i.opcode in PART:
    return min(sum(a.bytes for a in i.arrays), sum(map(main, operands[0].arrays))) + written
  if i.opcode in ("dynamic-update-slice", "scatter"):
    new = sum(main(a) for o in operands[1 if i.opcode[0] == "d" else -1 :] for a in o.arrays)
    return 2.0 * new
  return written + sum(main(a) for o in operands for a in o.arrays)


def main(a: Array) -> float:
  return a.bytes if a.space == 0 else 0.0


def _fusion(module: Module, at: Computation, i: Instruction) -> float:
  inner = module.computations[i.called[0]]
  used = [_of_parameter(module, inner, p) for _, p in sorted(inner.parameters().items())]
  read = 0.0
  for name, part in zip(i.operands, used, strict=True):
    whole = sum(map(main, at.instructions[name].arrays))
    read += whole if part is None else min(whole, part)
  return read + _result(inner, i)


def _result(inner: Computation, i: Instruction) -> float:
  """Returns bytes that a fusion writes; an update in place writes its part."""
  roots = [inner.root]
  if inner.root.opcode == "tuple":
    roots = [inner.instructions[name] for name in inner.root.operands]
  total = 0.0
  for root, array in zip(roots, i.arrays, strict=False):
    root = _behind(inner, root)
    new = array
    if root.opcode == "dynamic-update-slice":
      new = inner.instructions[root.operands[1]].arrays[0]._replace(space=array.space)
    elif root.opcode == "scatter":
      new = inner.instructions[root.operands[-1]].arrays[0]._replace(space=array.space)
    total += main(new)
  return total


def _behind(at: Computation, i: Instruction) -> Instruction:
  while i.opcode in ("bitcast", "copy", "convert") and i.operands:
    i = at.instructions[i.operands[0]]
  return i


def _of_parameter(module: Module, at: Computation, parameter: Instruction) -> float | None:
  """Returns bytes that are read of a fusion's parameter; None means the whole parameter."""
  total, handed_on = _reads(module, at, parameter)
  return None if handed_on else total


def _reads(module: Module, at: Computation, parameter: Instruction) -> tuple[float | None, bool]:
  """Returns (bytes or None for all, True if the computation returns the parameter itself, reshaped)."""
  total, names = 0.0, {parameter.name}
  for i in at.instructions.values():  # in order of their use
    mine = [n for n, name in enumerate(i.operands) if name in names]
    if not mine:
      continue
    if i.opcode == "bitcast":
      names.add(i.name)
    elif i.opcode in PART and mine == [0]:
      total += sum(a.bytes for a in i.arrays)
    elif i.opcode in ("dynamic-update-slice", "scatter") and mine == [0]:
      total += 0.0  # what is replaced is not read
    elif i.opcode == "fusion":
      inner = module.computations[i.called[0]]
      parts = [_reads(module, inner, inner.parameters()[n]) for n in mine]
      if any(part is None for part, _ in parts):
        return None, False
      total += sum(part for part, _ in parts)
      if any(handed_on for _, handed_on in parts):
        names.add(i.name)
    else:
      return None, False
  return total, at.root.name in names
