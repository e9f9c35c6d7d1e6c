"""Under what a benchmark ran: command, date, commit, machine, versions."""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import jax

ROOT = Path(__file__).parents[1]


def setting(module: str) -> dict:
  commit = subprocess.run(
    ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
  ).stdout.strip()
  return {
    "command": " ".join([f"python -m {module}", *sys.argv[1:]]),
    "date": time.strftime("%Y-%m-%d"),
    "commit": commit,
    "machine": f"{os.cpu_count()} CPU cores, {platform.machine()}",
    "load": os.getloadavg()[0],
    "versions": {"python": platform.python_version(), "jax": jax.__version__},
  }
