"""The devices that choices are made for, and what a program may take of one's memory."""

from typing import NamedTuple

import jax
import numpy as np

from grpojax.runtime import chips, memory, processes
from grpojax.runtime.chips import Chip


class Machine(NamedTuple):
  """The devices of a run, and what is known of one of them."""

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
  available = float(processes.allgather(np.float64(memory.available(jax.local_devices()))).min())
  return Machine(jax.devices(), available, chips.of_device(jax.devices()[0].device_kind) or chips.TPUS["v5e"])
