"""Seconds that a program takes on a chip: the compiler's cycles, and what they leave out by arithmetic.

Kernels run at the chip's share of the peak, by the schedules of attention's and of a mixture's products.
Collectives run at twice a link's rate, as on a ring that sends both ways, and between slices at that of the
network; those that begin and end apart hide behind work, as far as there is any.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from grpojax.runtime.chips import Chip
from grpojax.tools.podcheck.roofline.collectives import Collective
from grpojax.tools.podcheck.roofline.counts import Counts, Row


class Estimate(NamedTuple):
  """Work and seconds of one call, on one chip."""

  flops: float
  kernel_flops: float  # the part of `flops` that is in kernels, by formula
  bytes: float  # of main memory
  wire: dict[tuple[str, str], tuple[float, float]]  # (kind, axis) -> how many, bytes sent
  mxu: float  # seconds at the peak, as are the next two
  hbm: float
  ici: float  # and of the network between slices
  seconds: float  # with kernels at their shares of the peak
  fastest: float  # with kernels at the peak

  @property
  def bound(self) -> str:
    """Returns the resource that limits a perfect schedule."""
    times = {"MXU": self.mxu, "HBM": self.hbm, "ICI": self.ici}
    return max(times, key=times.get)


def estimate(counts: Counts, chip: Chip | None) -> Estimate:
  """Estimates a call's seconds; NaN without a chip's peaks."""
  rows = counts.rows
  flops = sum(r.times * r.flops for r in rows)
  kernel = sum(r.times * r.flops for r in rows if r.kernel)
  moved = sum(r.times * r.bytes for r in rows)
  sent = wire(rows)
  if chip is None or not chip.link:
    peak, memory = (chip.flops, chip.hbm) if chip else (float("nan"), float("nan"))
    none = float("nan")
    return Estimate(flops, kernel, moved, sent, flops / peak, moved / memory, none, none, none)
  work = sum(r.times * _work(r, chip) for r in rows)
  travels = [(r.collective.hidden, r.times * _travel(r.collective, chip)) for r in rows if r.collective]
  waits, hides = (sum(seconds for hidden, seconds in travels if hidden == h) for h in (False, True))
  mxu, hbm, ici = flops / chip.flops, moved / chip.hbm, waits + hides
  total = lambda share: max(work + _in_kernels(rows, chip, share), hides, hbm) + waits
  shared = total(lambda r: chip.mixture if "ragged" in r.kernel.lower() else chip.attention)
  return Estimate(flops, kernel, moved, sent, mxu, hbm, ici, shared, total(lambda _: 1.0))


def _work(r: Row, chip: Chip) -> float:
  """Returns seconds of one instruction, but 0 for kernels, collectives and copies beside others."""
  if r.beside or (r.kernel and r.flops):
    return 0.0
  return r.cycles / chip.clock if r.cycles else max(r.flops / chip.flops, r.bytes / chip.hbm)


def _in_kernels(rows: list[Row], chip: Chip, share: Callable[[Row], float]) -> float:
  """Returns seconds of a kernel by its FLOPs, at its share of the peak; or by its bytes without FLOPs."""
  ours = (r for r in rows if r.kernel and r.flops)
  return sum(r.times * max(r.flops / chip.flops / share(r), r.bytes / chip.hbm) for r in ours)


def _travel(c: Collective, chip: Chip) -> float:
  """Returns seconds of one collective."""
  return c.wire / (chip.network if "slice" in c.axis.split("+") else 2 * chip.link)


def wire(rows: list[Row]) -> dict:
  """Returns (kind, axis) -> (how many times, bytes that a device sends)."""
  times, sent = Counter(), Counter()
  for r in rows:
    if r.collective:
      key = r.collective.kind, r.collective.axis
      times[key] += r.times
      sent[key] += r.times * r.collective.wire
  return {key: (times[key], sent[key]) for key in sorted(times)}
