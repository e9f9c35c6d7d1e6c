"""Counts of a compiled program, loop by loop: every instruction, with how often it runs.

The compiler's own sum counts a loop's body once.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from grpojax.models.kernels import MASKED_SCOPE
from grpojax.tools.podcheck.roofline import collectives, flops, kernels, loops, traffic
from grpojax.tools.podcheck.roofline.collectives import Collective
from grpojax.tools.podcheck.roofline.hlo import Computation, Instruction, Module

UNKNOWN = 2.0**62  # cycles; the compiler writes its largest number for what other cores do


class Row(NamedTuple):
  """One instruction of a schedule: its work each time, and how many times it runs."""

  name: str
  source: str  # the operation of the program that it came from
  times: float
  flops: float
  bytes: float  # of main memory
  cycles: float  # as the compiler estimates them; 0: unknown
  kernel: str  # a custom kernel's name
  collective: Collective | None
  beside: bool = False  # a copy that other instructions do not wait for: it begins and ends apart


class Counts(NamedTuple):
  rows: list[Row]
  open_loops: list[str]  # sources of loops that data ends


def count(
  module: Module, mesh: dict[str, int], unknown: Mapping[str, int] | None = None, scored: float = 1.0
) -> Counts:
  """Counts instructions; `unknown` are iterations of loops that data ends, by `jax.named_scope` (else 1).

  Of a conditional's branches, the costliest is counted.  Of the pairs that a causal mask leaves, kernels of
  attention with a mask of their own score the share `scored`.
  """
  found = Counts([], [])
  _walk(module, module.computations[module.entry], mesh, unknown or {}, 1.0, {}, found)
  masked = lambda row: bool(row.kernel) and MASKED_SCOPE in row.source
  rows = [row._replace(flops=scored * row.flops) if masked(row) else row for row in found.rows]
  return found._replace(rows=rows)


def _walk(
  module, at: Computation, mesh, unknown, times: float, known, found: Counts, beside: bool = False
) -> None:
  """Adds the instructions of `at`, `times` times; `beside` marks them as run beside other work."""
  started = set()  # channels: some collectives are written where they begin, beside work, and where they end
  for i in at.instructions.values():
    if i.opcode == "while":
      n = loops.trips(module, at, i, known)
      if n is None:
        found.open_loops.append(_source(i))
        n = unknown.get(_scope(i), 1)
      body = module.computations[i.attribute(r"body=%?([\w.\-]+)")]
      fixed = loops.constants(module, at, i, known)
      _walk(module, body, mesh, unknown, times * n, fixed, found)
    elif i.opcode == "conditional":
      branches = []
      for name in i.called:
        branches.append(Counts([], []))
        _walk(module, module.computations[name], mesh, unknown, times, {}, branches[-1])
      if branches:
        costliest = max(branches, key=lambda b: sum(r.times * (r.flops + r.bytes) for r in b.rows))
        found.rows.extend(costliest.rows)
        found.open_loops.extend(costliest.open_loops)
    elif i.opcode in ("call", "async-start") or _on_other_core(i):
      for name in i.called:
        apart = beside or i.opcode == "async-start"
        _walk(module, module.computations[name], mesh, unknown, times, {}, found, apart)
    else:
      found.rows.extend(_rows(module, at, i, mesh, times, started, beside))


def _on_other_core(i: Instruction) -> bool:
  """Returns True for a custom call that wraps a collective on a SparseCore."""
  return i.opcode == "custom-call" and "called_computations={" in i.attributes


def _rows(module: Module, at, i: Instruction, mesh, times: float, started: set, beside: bool) -> list[Row]:
  work, inner = _inside(module, at, i, mesh)
  inner = [c for c in inner if c.channel not in started]
  apart = i.name.startswith("async-collective-start")
  if apart or beside:
    inner = [c._replace(hidden=True) for c in inner]
  if apart:
    started.update(c.channel for c in inner)
  kernel = kernels.name(i)
  work += kernels.flops(at, i) if kernel else 0.0
  moved = traffic.of_instruction(module, at, i)
  cycles = float(i.attribute(r'estimated_cycles":"(\d+)"') or 0)
  cycles = cycles if cycles < UNKNOWN else 0.0
  copies = not inner and (i.opcode == "copy-start" or (beside and not _moves_rows(i)))
  first = Row(i.name, _source(i), times, work, moved, cycles, kernel, inner[0] if inner else None, copies)
  more = [Row(i.name, _source(i), times, 0.0, 0.0, 0.0, "", c) for c in inner[1:]]
  return [first, *more] if work or moved or cycles or inner else []


def _moves_rows(i: Instruction) -> bool:
  """Returns True for rows that a SparseCore gathers or scatters: what is next reads them, and waits."""
  return "_offload_" in i.name


def _inside(module: Module, at: Computation, i: Instruction, mesh) -> tuple[float, list[Collective]]:
  """Returns FLOPs and collectives of an instruction and of all that is fused into it."""
  own = collectives.find(at, i, mesh)
  total, travels = flops.of_instruction(at, i), [own] if own else []
  if i.opcode == "fusion":
    inner = module.computations[i.called[0]]
    for j in inner.instructions.values():
      work, more = _inside(module, inner, j, mesh)
      total, travels = total + work, travels + more
  return total, travels


def _source(i: Instruction) -> str:
  return i.attribute(r'op_name="([^"]*)"') or i.name


def _scope(loop: Instruction) -> str:
  """Returns the innermost named scope around the loop."""
  return re.sub(r"^.*[/(]|\)+$", "", _source(loop).removesuffix("/while"))


def source_kind(row: Row) -> str:
  """Returns the end of the operation's name, for a list of what takes longest."""
  return re.sub(r"^.*/(?=[^/]*/[^/]*$)", "", row.source)
