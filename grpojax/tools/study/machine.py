"""The code and the machine of a run: noted in its log when it starts, read when results are collected.

Who collects may sit elsewhere: at a login node, or before runs that were copied from another machine.
"""

import json
import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

from grpojax.runtime import processes, storage

UNKNOWN = "unknown"  # of runs whose log has no note
LIBRARIES = ("jax", "flax", "optax")


def here() -> dict[str, str]:
  """Returns this machine's processor, and the versions of Python and libraries."""
  own = {"processor": f"{os.cpu_count()} cores, {_processor()}", "python": platform.python_version()}
  return own | {name: version(name) for name in LIBRARIES}


def note() -> str:
  """Returns two lines for a run's log, what `noted` reads."""
  return f"commit {processes.commit()}\nmachine {json.dumps(here())}\n"


def noted(workdirs: list[Path]) -> dict[str, str]:
  """Returns commit, device, processor and versions that the runs' logs have; all where they differ."""
  logs = "".join(storage.read_text(workdir / "log.txt") for workdir in workdirs)
  machines = [json.loads(line) for line in re.findall(r"^machine (\{.*\})$", logs, re.MULTILINE)]
  found = {
    "commit": re.findall(r"^commit (\S+)$", logs, re.MULTILINE),
    "device": re.findall(r"on \d+ of (\d+ .+) device\(s\)", logs),
  }
  found |= {key: [of[key] for of in machines] for key in ("processor", "python", *LIBRARIES)}
  return {key: ", ".join(sorted(set(values))) or UNKNOWN for key, values in found.items()}


def _processor() -> str:
  model = re.search(r"model name\s*: (.+)", storage.read_text(Path("/proc/cpuinfo")))
  return model[1].strip() if model else platform.machine()
