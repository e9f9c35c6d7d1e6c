"""Trip counts of the loops of compiled code, where the code tells them."""

import re
from typing import NamedTuple

from grpojax.tools.podcheck.roofline.hlo import Computation, Instruction, Module

Known = dict[int, int]  # element of a computation's only parameter, a tuple -> the constant that it always is
SAME = ("copy", "bitcast", "convert", "reshape", "copy-start", "copy-done")


class Affine(NamedTuple):
  """An element of the computation's parameter (None: nothing) plus a number."""

  element: int | None
  offset: int


def trips(module: Module, at: Computation, loop: Instruction, known: Known) -> int | None:
  """Returns iterations of `loop`, an instruction of `at` whose parameter has `known`; None: data decides."""
  count = loop.attribute(r'known_trip_count":\{"n":"(\d+)"')
  if count:
    return int(count)
  count, limit, direction = _condition(module, loop)
  if count is None or limit is None or count.element is None:
    return None
  limit = _constant(limit, constants(module, at, loop, known))
  start = _initial(module, at, loop, known).get(count.element)
  body = _computation(module, loop, "body")
  step = affine(module, body, body.root.operands[count.element])
  if limit is None or start is None or step is None or step.element != count.element or not step.offset:
    return None
  ahead = limit - start - count.offset + (direction == "LE") - (direction == "GE")
  return max(0, -(-ahead // step.offset)) if direction in ("LT", "LE", "GT", "GE", "NE") else None


def constants(module: Module, at: Computation, loop: Instruction, known: Known) -> Known:
  """Returns the constants of the loop's tuple that its body passes on unchanged."""
  body = _computation(module, loop, "body")
  same = lambda i: affine(module, body, body.root.operands[i]) == Affine(i, 0)
  return {i: n for i, n in _initial(module, at, loop, known).items() if same(i)}


def affine(module: Module, at: Computation, name: str, given: list | None = None) -> Affine | None:
  """Returns an integer of a computation as Affine, or None; `given` are a fusion's parameters."""
  i = at.instructions[name]
  while i.opcode in SAME:
    i = at.instructions[i.operands[0]]
  if i.opcode == "constant":
    return Affine(None, int(i.inside)) if re.fullmatch(r"-?\d+", i.inside) else None
  if i.opcode == "parameter":
    return given[int(i.inside)] if given else None
  if i.opcode == "get-tuple-element":
    of_parameter = at.instructions[i.operands[0]].opcode == "parameter"
    return Affine(int(i.attribute(r"index=(\d+)")), 0) if of_parameter else None
  if i.opcode == "fusion":
    inner = module.computations[i.called[0]]
    return affine(module, inner, inner.root.name, [affine(module, at, n, given) for n in i.operands])
  if i.opcode in ("add", "subtract"):
    a, b = (affine(module, at, n, given) for n in i.operands)
    sign = 1 if i.opcode == "add" else -1
    if a is None or b is None or (b.element is not None and (sign < 0 or a.element is not None)):
      return None
    return Affine(b.element if a.element is None else a.element, a.offset + sign * b.offset)
  return None


def _condition(module: Module, loop: Instruction) -> tuple[Affine | None, Affine | None, str]:
  """Returns (counter, its limit, the direction of the comparison)."""
  at = _computation(module, loop, "condition")
  root, given = at.root, None
  if root.opcode == "fusion":
    given = [affine(module, at, name) for name in root.operands]
    at = module.computations[root.called[0]]
    root = at.root
  if root.opcode != "compare":
    return None, None, ""
  left, right = (affine(module, at, name, given) for name in root.operands)
  return left, right, root.attribute(r"direction=(\w+)")


def _initial(module: Module, at: Computation, loop: Instruction, known: Known) -> Known:
  """Returns the elements of the loop's tuple that are constants before its first iteration."""
  init = at.instructions[loop.operands[0]]
  if init.opcode != "tuple":
    return {}
  values = [_constant(affine(module, at, name), known) for name in init.operands]
  return {i: value for i, value in enumerate(values) if value is not None}


def _constant(x: Affine | None, known: Known) -> int | None:
  if x is None or (x.element is not None and x.element not in known):
    return None
  return x.offset + (known[x.element] if x.element is not None else 0)


def _computation(module: Module, loop: Instruction, which: str) -> Computation:
  return module.computations[loop.attribute(rf"{which}=%?([\w.\-]+)")]
