"""Memory that a device has, and what a run has taken at the most so far."""

import os
import resource
import sys

import jax


def available(devices: list) -> int:
  """Returns the bytes that one of a process's devices has; on a CPU a share of the machine's."""
  limit = (devices[0].memory_stats() or {}).get("bytes_limit")
  if limit:
    return limit
  return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // len(devices)


def peaks() -> dict[str, float]:
  """Returns metrics of this process's memory and of its fullest device, in GB of 10⁹ bytes.

  A backend that counts nothing, as a CPU's, has no number of its devices.
  """
  unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
  found = {"memory/host_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9}
  stats = [device.memory_stats() or {} for device in jax.local_devices()]
  if used := [s["peak_bytes_in_use"] for s in stats if "peak_bytes_in_use" in s]:
    found["memory/device_gb"] = max(used) / 1e9
  return found
