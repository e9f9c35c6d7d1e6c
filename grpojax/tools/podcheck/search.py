"""Search over meshes and remat policies of the update: all that could fit are compiled, and ranked."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from grpojax.config import overrides
from grpojax.runtime import sharding
from grpojax.tools.podcheck import check as check_lib
from grpojax.tools.podcheck import programs
from grpojax.tools.podcheck.check import Check
from grpojax.tools.podcheck.topology import Slice
from grpojax.train import footprint

AXES = ("fsdp", "tensor", "expert", "context")
REMAT = ("full", "attention")


class Candidate(NamedTuple):
  change: dict  # dotted key -> value
  check: Check | None  # of the update alone
  left_out: str  # why the candidate was not compiled

  @property
  def seconds(self) -> float:
    """Returns the estimated seconds of one update."""
    return self.check.parts["update"].estimate.seconds if self.check and self.check.fits else math.inf


def meshes(chips: int, mixture: bool) -> Iterator[dict[str, int]]:
  """Yields every way to factor so many chips over AXES, `data` 1; `expert` for mixtures only."""
  sizes = [n for n in range(1, chips + 1) if chips % n == 0]
  for tensor in sizes:
    for expert in sizes if mixture else [1]:
      for context in sizes:
        rest = chips // tensor // expert // context
        if tensor * expert * context * rest == chips:
          yield dict(data=1, fsdp=rest, tensor=tensor, expert=expert, context=context)


def search(config: ConfigDict, where: Slice, scratch: Path) -> Iterator[Candidate]:
  """Yields candidates one after the other, as they are compiled."""
  first = programs.plan(config, where.machine, scratch)
  for sizes in meshes(first.mesh.size, bool(first.model.spec.moe)):
    for remat in REMAT:
      change = {f"mesh.{axis}": n for axis, n in sizes.items()} | dict(remat=remat)
      changed = overrides.changed(config, change)
      try:
        reason = _hopeless(programs.plan(changed, where.machine, scratch), where)
        found = None if reason else check_lib.check(changed, where, scratch, ("update",))
      except ValueError as error:
        found, reason = None, str(error)
      yield Candidate(change, found, reason)


def _hopeless(plan: programs.Plan, where: Slice) -> str:
  """Returns why a mesh need not be compiled: too much memory for certain, or a head would be cut; or ""."""
  s, tensor = plan.model.spec, plan.mesh.shape["tensor"]
  if s.num_attention_heads % tensor:
    return f"{s.num_attention_heads} heads over {tensor} tensor shards would be whole on each"
  state = sharding.bytes_per_chip(*programs.state(plan))
  certain = 1.3 * state + footprint.activations(plan)  # gradients are about a third of the state
  room = where.chip.memory if where.chip else math.inf
  return f"state and activations take {certain / 2**30:.3g} GiB" if certain > room else ""


def best(candidates: list[Candidate], number: int = 5) -> list[Candidate]:
  """Returns the fastest that fit; where no time is estimated, those that need least memory."""
  fitting = [c for c in candidates if c.check and c.check.fits]
  memory = lambda c: c.check.parts["update"].needed
  order = lambda c: (c.seconds if not math.isnan(c.seconds) else 0.0, memory(c))
  return sorted(fitting, key=order)[:number]
