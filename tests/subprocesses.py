"""Real processes on loopback, as hosts of one run."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
QUICK = (
  "--xla_cpu_use_fusion_emitters=false"  # half the compile time, of programs that are as right
  " --xla_cpu_collective_call_terminate_timeout_seconds=300"  # eight devices of one busy core may be late
)


class Ended(NamedTuple):
  code: int
  out: str
  err: str


def free_port() -> int:
  with contextlib.closing(socket.socket()) as s:
    s.bind(("127.0.0.1", 0))
    return s.getsockname()[1]


def environment(**extra) -> dict[str, str]:
  """One device a process; compiled in a hurry, and kept."""
  return os.environ | {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": QUICK,
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
    **extra,
  }


def start(commands: list[list[str]], own: list[dict] | None = None) -> list[subprocess.Popen]:
  """A process for each command, who know of each other; `own[i]` is more environment of process i."""
  port, started = free_port(), []
  for i, command in enumerate(commands):
    found = dict(
      JAX_COORDINATOR_ADDRESS=f"127.0.0.1:{port}", JAX_NUM_PROCESSES=str(len(commands)), JAX_PROCESS_ID=str(i)
    )
    env = environment(**found, **(own[i] if own else {}))
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started.append(subprocess.Popen([sys.executable, *command], cwd=ROOT, env=env, **pipes))
  return started


def ended(started: list[subprocess.Popen], timeout: int = 240) -> list[Ended]:
  """How each of them ended, and what it said."""
  try:
    spoken = [process.communicate(timeout=timeout) for process in started]
  finally:
    for process in started:
      process.kill()
  return [Ended(process.returncode, *both) for process, both in zip(started, spoken, strict=True)]


def run(commands: list[list[str]], own: list[dict] | None = None, timeout: int = 240) -> list[Ended]:
  return ended(start(commands, own), timeout)


def odd(sample) -> float:
  """Right or wrong by a coin, so that some groups are mixed; notes who scored what.

  `SIGNAL` names a signal and a number of completions, after which this process sends it to itself; with
  `WRONG` it finds all of them wrong.
  """
  if log := os.environ.get("SCORED"):
    with Path(log).open("a") as file:
      file.write(f"{sample.example['question']}\n")
    name, _, number = os.environ.get("SIGNAL", "").partition(":")
    if name and len(Path(log).read_text().splitlines()) == int(number):
      os.kill(os.getpid(), signal.Signals[name])
  if os.environ.get("WRONG"):
    return 0.0
  return float(sum(map(ord, sample.text)) % 2)
