"""A program compiled for a slice: the compiler's verdict on memory, and the optimised HLO text."""

import math
import re
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import jax

from grpojax.tools.podcheck.programs import Program
from grpojax.tools.podcheck.roofline import counts, hlo
from grpojax.tools.podcheck.roofline.counts import Counts
from grpojax.tools.podcheck.topology import Slice

_PART = (
  "config.mesh.rollout_devices leaves a part of {} to each program, for which this libtpu cannot compile;"
  " check slices of as many chips as learn, and as sample, without it."
)


class Compiled(NamedTuple):
  """The compiler's numbers, all for one device."""

  seconds: float  # that compiling took
  refused: str  # "" if it fits, else the compiler's own words
  needed: float  # bytes: arguments, results that take no argument's place, temporaries and code
  temporaries: float  # bytes
  given: float  # bytes of arguments
  counts: Counts | None


def compile_for(where: Slice, program: Program) -> Compiled:
  """Compiles a lowered program; one that does not fit is refused, not raised.

  Raises ValueError where the compiler takes no part of a slice.
  """
  start = time.perf_counter()
  with tempfile.TemporaryDirectory() as dump:
    options = dict(xla_dump_to=dump, xla_dump_hlo_as_text=True) if where.abstract else {}
    try:
      done = program.lowered.compile(compiler_options=options)
    except jax.errors.JaxRuntimeError as error:
      if "RET_CHECK" in str(error) and math.prod(program.mesh.values()) < len(where.devices):
        raise ValueError(_PART.format(where.name)) from None
      return Compiled(time.perf_counter() - start, *_refusal(error), 0.0, 0.0, None)
    seconds = time.perf_counter() - start
    text = _dumped(Path(dump)) if where.abstract else done.as_text()
  m = done.memory_analysis()
  needed = m.argument_size_in_bytes + m.output_size_in_bytes - m.alias_size_in_bytes + m.temp_size_in_bytes
  found = counts.count(hlo.parse(text), program.mesh, program.unknown, program.scored)
  needed += m.generated_code_size_in_bytes
  return Compiled(seconds, "", needed, m.temp_size_in_bytes, m.argument_size_in_bytes, found)


def _dumped(folder: Path) -> str:
  """Returns the last text of the largest program, which cannot print itself once it is compiled."""
  return max(folder.glob("*.after_codegen.txt"), key=lambda path: path.stat().st_size).read_text()


def _refusal(error: Exception) -> tuple[str, float]:
  """Returns (reason, bytes that the program needed); raises any other error again."""
  words = str(error)
  if "RESOURCE_EXHAUSTED" not in words:
    raise error
  size = r"([\d.]+)([KMGT])i?B?"
  used = re.search(rf"Used {size} of", words) or re.search(rf"{size}\)? exceeds", words)
  scale = dict(K=2**10, M=2**20, G=2**30, T=2**40)
  needed = float(used.group(1)) * scale[used.group(2)] if used else float("nan")
  return words.splitlines()[0][:200], needed
