"""Commands as processes of their own: alone, or on loopback as hosts of one run."""

import asyncio
import contextlib
import functools
import importlib.metadata
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from grpojax.rollout.envs.interface import Turn

ROOT = Path(__file__).parents[1]
# Many tests compile the same program.  They are kept between runs, by jax's version and the program itself.
PROGRAMS = Path("~/.cache/grpojax-tests").expanduser() / importlib.metadata.version("jax")
QUICK = (
  "--xla_cpu_use_fusion_emitters=false"  # half the compile time, of programs that are as right
  " --xla_cpu_parallel_codegen_split_count=1"  # two thirds of it: parts of a small program cost more than it
  " --xla_cpu_collective_call_terminate_timeout_seconds=300"  # eight devices of one busy core may be late
)


def cache_in(folder: Path) -> Path:
  """Makes the folder a config.cache_dir whose programs are those that are kept, and returns it."""
  for one in folder, PROGRAMS:
    one.mkdir(parents=True, exist_ok=True)
  with contextlib.suppress(FileExistsError):
    (folder / "programs").symlink_to(PROGRAMS)
  return folder


class Ended(NamedTuple):
  code: int
  out: str
  err: str


def free_port() -> int:
  with contextlib.closing(socket.socket()) as s:
    s.bind(("127.0.0.1", 0))
    return s.getsockname()[1]


def environment(**extra) -> dict[str, str]:
  """One device a process; compiled in a hurry, and kept; stdout is buffered as users have it."""
  buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
  return buffered | {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": QUICK,
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
    **extra,
  }


def hosts(number: int, own: list[dict] | None = None) -> list[dict[str, str]]:
  """Environments of processes that know of each other; `own[i]` is more of process i."""
  port, found = free_port(), dict(JAX_NUM_PROCESSES=str(number))
  found |= dict(JAX_COORDINATOR_ADDRESS=f"127.0.0.1:{port}")
  return [environment(**found, JAX_PROCESS_ID=str(i), **(own[i] if own else {})) for i in range(number)]


def start(commands: list[list[str]], own: list[dict] | None = None) -> list[subprocess.Popen]:
  """A process for each command (`["-m", module, *flags]`), as hosts of one run."""
  pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  environments = hosts(len(commands), own)
  return [
    subprocess.Popen([sys.executable, *command], cwd=ROOT, env=env, **pipes)
    for command, env in zip(commands, environments, strict=True)
  ]


def ended(started: list[subprocess.Popen], timeout: int = 240) -> list[Ended]:
  """How each of them ended, and what it said."""
  try:
    spoken = [process.communicate(timeout=timeout) for process in started]
  finally:
    for process in started:
      process.kill()
  return [Ended(process.returncode, *both) for process, both in zip(started, spoken, strict=True)]


def run(commands: list[list[str]], own: list[dict] | None = None) -> list[Ended]:
  """As `ended(start(commands, own))`, but forked."""
  return forked(commands, hosts(len(commands), own))


def ended_well(found: list[Ended], code: int = 0) -> None:
  """Asserts that all ended with this status; else shows what they said."""
  assert all(one.code == code for one in found), "\n".join(one.out + one.err for one in found)


def run_one(*words: str) -> Ended:
  """How `python -m WORDS`, a command or a study, ends, alone."""
  return forked([["-m", *words]], [environment()])[0]


def forked(commands: list[list[str]], environments: list[dict[str, str]], timeout: int = 240) -> list[Ended]:
  """How commands and studies end that run side by side, each a fork of one parent with the product imported.

  Importing costs as much as all else in a command that refuses its flags.
  """
  parent = warm_parent()
  with tempfile.TemporaryDirectory() as folder:
    files = [(Path(folder) / f"out{i}", Path(folder) / f"err{i}") for i in range(len(commands))]
    asked = [
      [words[1:], env, *map(str, said)]  # without the -m
      for words, env, said in zip(commands, environments, files, strict=True)
    ]
    parent.stdin.write(json.dumps(asked) + "\n")
    parent.stdin.flush()
    if not select.select([parent.stdout], [], [], timeout)[0]:
      os.killpg(parent.pid, signal.SIGKILL)
      warm_parent.cache_clear()
    answer = parent.stdout.readline()
    said = [(out.read_text(), err.read_text()) for out, err in files]
  assert answer, f"{commands}: no end after {timeout} s: {said}"
  return [Ended(code, *both) for code, both in zip(json.loads(answer), said, strict=True)]


@functools.cache
def warm_parent() -> subprocess.Popen:
  """The process that forks; ends with this one, which then closes its stdin."""
  command = [sys.executable, str(ROOT / "tests" / "warm_parent.py")]
  pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
  return subprocess.Popen(command, cwd=ROOT, env=environment(), start_new_session=True, **pipes)


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


async def odd_late(sample) -> float:
  """As `odd`, but other processes answer at other times."""
  await asyncio.sleep(0.02 * ((sum(map(ord, sample.text)) + int(os.environ.get("JAX_PROCESS_ID", 0))) % 5))
  return odd(sample)


class Parity:
  """An environment that pays for about every second action, three times, unless it fails, of some seeds."""

  def reset(self, example, seed):
    self.seed, self.turns = seed, 0
    return self._turn(0.0)

  def step(self, action):
    self.turns += 1
    if self.seed % 11 == 0:
      raise RuntimeError("out of order")
    return self._turn(float(sum(map(ord, action)) % 2))

  def close(self):
    pass

  def _turn(self, reward):
    where = (self.seed + self.turns) % 4
    return Turn(f"{where}", reward=reward, done=self.turns == 3, anchor=where)
