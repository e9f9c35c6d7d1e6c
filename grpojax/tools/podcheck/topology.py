"""Devices of a slice by its name, to compile for where there are none."""

import os
from typing import NamedTuple

import jax

from grpojax.runtime import chips, memory
from grpojax.runtime.chips import Chip
from grpojax.train.auto import Machine


class Slice(NamedTuple):
  name: str
  devices: list
  chip: Chip | None  # None: no peaks are known, and no time is estimated
  abstract: bool  # its devices cannot run anything

  @property
  def machine(self) -> Machine:
    """Returns the devices with the memory that a program may have of each."""
    if not self.chip:
      return Machine(self.devices, memory.available(self.devices))
    return Machine(self.devices, self.chip.memory, self.chip)

  @property
  def versions(self) -> str:
    return f"jax {jax.__version__}" + (f", libtpu {_libtpu()}" if self.abstract else "")


def find(name: str, slices: int = 1) -> Slice:
  """Returns a slice: "v5p:4x4x4", "cpu:8" (so many devices of this machine), or "" for what is here.

  GPUs ("gpu:24" of 24 GB, "gpu:8xH100") have devices of this machine in their place, for arithmetic.
  `slices` TPU slices are joined by a slower network.  Raises ValueError for any other name.  This is called
  before anything else of JAX.
  """
  kind, _, size = name.partition(":")
  if kind == "gpu" and size:
    return _gpus(name, size)
  if kind in ("", "cpu"):
    if size and not (size.isdecimal() and int(size)):
      raise ValueError(f"--topology={name} has no devices; it is cpu:N, such as cpu:8.")
    _compile_afresh()
    if size:
      jax.config.update("jax_num_cpu_devices", int(size))
    if kind:
      jax.config.update("jax_platforms", "cpu")
    found = jax.devices()
    name = name or f"{found[0].platform}:{len(found)}"
    return Slice(name, found, chips.of_device(found[0].device_kind), False)
  if kind not in chips.TPUS:
    known = ", ".join(f"{k}:..." for k in chips.TPUS)
    raise ValueError(
      f"--topology={name} is no slice; it is cpu:N, gpu:GB or one of {known}, such as v5p:4x4x4."
    )
  devices = _tpu(name, slices)
  return Slice(f"{slices} x {name}" if slices > 1 else name, devices, chips.TPUS[kind], True)


def _gpus(name: str, size: str) -> Slice:
  count, _, kind = size.rpartition("x")
  chip = chips.gpu(kind)
  if not chip or not (count or "1").lstrip("0").isdigit():
    raise ValueError(
      f"--topology={name} is no GPU; it is gpu:GB or one of {', '.join(f'gpu:{k}' for k in chips.GPUS)}; of "
      "several, gpu:8xH100."
    )
  return Slice(name, find(f"cpu:{count or 1}").devices, chip, True)


def _tpu(name: str, slices: int) -> list:
  for key, value in (("TPU_WORKER_HOSTNAMES", "localhost"), ("TPU_ACCELERATOR_TYPE", "v5litepod-4"),
                     ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"), ("TPU_SKIP_MDS_QUERY", "1")):  # fmt: skip
    os.environ.setdefault(key, value)  # the compiler asks for a machine; several may compile at a time
  jax.config.update("jax_platforms", "cpu")
  _compile_afresh()
  try:
    _libtpu()
  except ImportError:
    missing = "A TPU's compiler is the wheel libtpu, which is not here: pip install grpojax[pods]."
    raise ValueError(missing) from None
  from jax.experimental import topologies

  try:
    found = topologies.get_topology_desc(platform="tpu", topology_name=name, num_slices=slices)
    return found.devices
  except Exception as error:  # libtpu's errors have no type of their own
    words = str(error).splitlines()[0]
    raise ValueError(f"--topology={name} is not known to libtpu {_libtpu()}: {words}") from None


def _compile_afresh() -> None:
  """Disables the cache: programs compiled for others cannot be read back, and old ones name old lines."""
  jax.config.update("jax_enable_compilation_cache", False)


def _libtpu() -> str:
  import libtpu

  return libtpu.__version__
