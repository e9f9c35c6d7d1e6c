"""Collectives between devices: which kind, how many bytes, along which axis of the mesh."""

import math
import re
from typing import NamedTuple

import numpy as np

from grpojax.tools.podcheck.roofline.hlo import Computation, Instruction

KINDS = (
  "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute",
  "collective-broadcast",
)  # fmt: skip


class Collective(NamedTuple):
  kind: str
  axis: str  # of the mesh, several joined by "+"; "slice": over the network between slices
  devices: int  # that take part in one
  bytes: float  # of the whole array on one device: what is gathered to, or reduced from
  hidden: bool  # begins and ends in two instructions, so that work can be done meanwhile
  channel: str = ""  # one number for all appearances of the same

  @property
  def wire(self) -> float:
    """Returns bytes that a device sends, on a ring."""
    share = (self.devices - 1) / self.devices
    times = {"collective-permute": 1.0, "send": 1.0, "all-reduce": 2 * share}
    return self.bytes * times.get(self.kind, share)


def find(at: Computation, i: Instruction, mesh: dict[str, int]) -> Collective | None:
  """Returns the collective that an instruction of `at` is or begins; its end counts nothing."""
  kind = i.opcode.removesuffix("-start")
  between_slices = kind == "send" and "xla_megascale_runtime" in i.attributes
  if kind not in KINDS and not between_slices:
    return None
  given = sum(a.bytes for name in i.operands for a in at.instructions[name].arrays)
  channel = i.attribute(r"channel_id=(\d+)") or ""
  if between_slices:  # hosts add up what their slices hand them
    return Collective(kind, "slice", mesh["slice"], given, True, channel)
  devices, axis = _over(i, mesh)
  if devices < 2:
    return None
  size = given * devices if kind == "all-gather" else given
  if kind == "all-reduce" and "all-reduce-scatter" in at.name:  # how a TPU's compiler writes it
    kind = "reduce-scatter"
  hidden = i.opcode.endswith("-start")
  return Collective(kind, axis, devices, size, hidden, channel)


def _over(i: Instruction, mesh: dict[str, int]) -> tuple[int, str]:
  """Returns (devices of a group, the axes along which they differ)."""
  if i.opcode.startswith("collective-permute"):
    pairs = i.attribute(r"source_target_pairs=\{(.*?)\}\}") or ""
    pairs = [[int(n) for n in pair] for pair in re.findall(r"(\d+),(\d+)", pairs)]
    return (2, _axes(np.array(pairs), mesh)) if pairs else (1, "")
  group = first_group(i.attributes, math.prod(mesh.values()))
  return len(group), _axes(group[None], mesh)


def _axes(groups: np.ndarray, mesh: dict[str, int]) -> str:
  """Returns the axes of the mesh whose coordinate differs within one of groups [n, devices]."""
  coordinates = np.stack(np.unravel_index(groups, tuple(mesh.values())))
  differs = (coordinates != coordinates[:, :, :1]).any(axis=(1, 2))
  return "+".join(axis for axis, d in zip(mesh, differs, strict=True) if d)


def first_group(attributes: str, devices: int) -> np.ndarray:
  """Returns device numbers of the first of `replica_groups`, in each of XLA's notations."""
  listed = re.search(r"replica_groups=\{\{([\d,]+)\}", attributes)
  if listed:
    return np.array([int(n) for n in listed.group(1).split(",")])
  counted = re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", attributes)
  if counted:
    shape, sizes, order = ([int(n) for n in (x or "").split(",") if n] for x in counted.groups())
    numbers = np.arange(math.prod(sizes)).reshape(sizes)
    return numbers.transpose(order or range(len(sizes))).reshape(shape)[0]
  named = re.search(r"replica_groups=mesh\[([^\]]*)\](?:[^{]*?)\{([^}]*)\}", attributes)
  if named:
    return _of_named(*named.groups())
  return np.arange(devices)


def _of_named(sizes: str, used: str) -> np.ndarray:
  """Reads mesh['a'=2,'b'=8] {'b':(2)4}: the whole axis, or its part of size 4 below one of size 2."""
  sizes = {name: int(n) for name, n in re.findall(r"'([^']+)'=(\d+)", sizes)}
  split, taken = [], []
  parts = {name: (int(above or 1), int(size or sizes[name]))
           for name, above, size in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", used)}  # fmt: skip
  for name, size in sizes.items():
    above, mine = parts.get(name, (1, 1))
    taken.append(len(split) + 1)
    split += [above, mine, size // above // mine]
  numbers = np.arange(math.prod(split)).reshape(split)
  return numbers[tuple(slice(None) if axis in taken else 0 for axis in range(len(split)))].ravel()
