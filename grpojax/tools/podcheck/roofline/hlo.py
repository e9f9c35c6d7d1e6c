"""The text of a compiled program -> computations of instructions, with shapes.  No judgement of costs."""

import math
import re
from typing import NamedTuple

BITS = {"pred": 8, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "c64": 64, "c128": 128, "token": 0, "opaque": 0}


class Array(NamedTuple):
  """One array of a type; a tuple's are listed end to end."""

  dtype: str
  shape: tuple[int, ...]
  space: int  # 0: the device's main memory; else a smaller one beside the cores, as a layout's S(1) says

  @property
  def size(self) -> int:
    return math.prod(self.shape)

  @property
  def bytes(self) -> float:
    bits = BITS[self.dtype] if self.dtype in BITS else int(re.search(r"\d+", self.dtype).group())
    return self.size * bits / 8


class Instruction(NamedTuple):
  name: str
  arrays: tuple[Array, ...]  # of its result
  opcode: str
  operands: tuple[str, ...]  # names, in the same computation
  inside: str  # the text between the brackets behind the opcode: a constant's value, a parameter's number
  attributes: str  # what follows
  root: bool

  def attribute(self, pattern: str) -> str | None:
    """Returns the first group of a regular expression, in the attributes."""
    found = re.search(pattern, self.attributes)
    return found and found.group(1)

  @property
  def called(self) -> list[str]:
    """Returns the computations that run as part of the instruction, without a reduction's pairwise ones."""
    names = re.findall(r"(?:calls|true_computation|false_computation|body)=%?([\w.\-]+)", self.attributes)
    for several in ("branch", "called"):
      names += re.findall(r"%?([\w.\-]+)", self.attribute(several + r"_computations=\{([^}]*)\}") or "")
    if self.opcode in ("call", "async-start"):
      names += re.findall(r"to_apply=%?([\w.\-]+)", self.attributes)
    return names


class Computation(NamedTuple):
  name: str
  instructions: dict[str, Instruction]

  @property
  def root(self) -> Instruction:
    return next(i for i in self.instructions.values() if i.root)

  def parameters(self) -> dict[int, Instruction]:
    return {int(i.inside): i for i in self.instructions.values() if i.opcode == "parameter"}


class Module(NamedTuple):
  entry: str
  computations: dict[str, Computation]


def parse(text: str) -> Module:
  """Parses an HLO module as XLA prints it."""
  computations, entry, current = {}, "", None
  for line in re.sub(r"\n(?=[\"}].)", "", text).splitlines():  # a kernel's metadata has lines of its own
    if line.startswith(("%", "ENTRY")) and line.rstrip().endswith("{"):
      name = re.match(r"(?:ENTRY )?%?([\w.\-]+)", line).group(1)
      current = computations[name] = Computation(name, {})
      entry = name if line.startswith("ENTRY") else entry
    elif current and line.startswith("  ") and " = " in line:
      instruction = _instruction(line)
      current.instructions[instruction.name] = instruction
    elif line.startswith("}"):
      current = None
  return Module(entry, computations)


def _instruction(line: str) -> Instruction:
  left, right = line.split(" = ", 1)
  right = re.sub(r"/\*.*?\*/", "", right)
  end = _closing(right, 0) + 1 if right.startswith("(") else right.index(" ")
  kind, right = right[:end], right[end:].lstrip()
  start = right.index("(")
  end = _closing(right, start)
  inside, opcode = right[start + 1 : end], right[:start]
  operands = tuple(re.findall(r"%([\w.\-]+)", inside)) if opcode not in ("constant", "parameter") else ()
  name = left.replace("ROOT", "").strip().lstrip("%")
  return Instruction(name, _arrays(kind), opcode, operands, inside, right[end + 1 :], "ROOT" in left)


def _closing(text: str, start: int) -> int:
  """Returns the index at which the bracket that opens at `start` is closed."""
  depth = 0
  for found in re.finditer(r"[()]", text[start:]):
    depth += 1 if found.group() == "(" else -1
    if not depth:
      return start + found.start()
  raise ValueError(f"A bracket is never closed: {text[start : start + 80]}")


def _arrays(kind: str) -> tuple[Array, ...]:
  found = re.findall(r"([a-z]\w*)\[([\d,]*)\](\{[^}]*\})?", kind)
  space = lambda layout: int(re.search(r"S\((\d+)\)", layout + "S(0)").group(1))
  shape = lambda sizes: tuple(int(n) for n in sizes.split(",") if n)
  return tuple(Array(dtype, shape(sizes), space(layout)) for dtype, sizes, layout in found)
