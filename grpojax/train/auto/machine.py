"""The devices that choices are made for, and what a program may take of one's memory."""

import os
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from grpojax.runtime import chips
from grpojax.runtime.chips import Chip


class Machine(NamedTuple):
  """What a run has."""

  devices: list
  memory: float  # bytes of a device that a program may take
  chip: Chip = chips.TPUS["v5e"]  # its rates; those of a v5e where they are not known
  attention: str = ""  # back end of the devices that are meant, where `devices` stand for others

  @property
  def accelerated(self) -> bool:
    """Returns True for GPUs and TPUs."""
    return bool(self.attention) or self.devices[0].platform != "cpu"


def here() -> Machine:
  """Collective: returns this job's devices, with the least memory that a process has of one."""
  memory = memory_of(jax.local_devices())
  if jax.process_count() > 1:
    memory = float(multihost_utils.process_allgather(np.float64(memory)).min())
  return Machine(jax.devices(), memory, chips.of_device(jax.devices()[0].device_kind) or chips.TPUS["v5e"])


def memory_of(devices: list) -> int:
  """Returns the bytes that one of a process's devices has; on a CPU a share of the machine's."""
  limit = (devices[0].memory_stats() or {}).get("bytes_limit")
  if limit:
    return limit
  return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // len(devices)
