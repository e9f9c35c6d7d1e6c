"""Several processes of one run: how they start, compare and share values, and end.

Every process runs the same program on its own devices (multi-controller JAX); docs/hosts.md says how to
start them.  All processes must call a function that is marked "Collective:", in the same order.
"""

import functools
import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from grpojax.runtime.compile import SENDING

HEARTBEAT = 100  # seconds without a sign of life until a process counts as dead, which ends all; JAX's own
LOST = 134  # status of a process that ends because another one has, as when JAX aborts it
SMALL = 1024  # words of 32 bits that `allgather` rounds up to a power of two
LAST_WORDS = 5  # seconds that a failing process waits for the others, which may have a message too
BY_HAND = dict(  # flag -> the environment variable that stands in for it
  coordinator_address="JAX_COORDINATOR_ADDRESS",
  num_processes="JAX_NUM_PROCESSES",
  process_id="JAX_PROCESS_ID",
)


def initialize(given: Mapping[str, str | int | None], heartbeat: int = HEARTBEAT) -> None:
  """Joins this process to a run's others, if flags or the environment say that there are several.

  `given` are the flags of BY_HAND, which win over the environment.  This call comes before every other use
  of JAX.  Raises ValueError for flags that contradict each other.
  """
  found = _by_hand(given)
  if found.get("num_processes") == 1 or not (found or _cluster()):
    return
  jax.config.update("jax_cpu_collectives_implementation", "gloo")
  jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM from signals.py
  try:
    jax.distributed.initialize(**found, heartbeat_timeout_seconds=heartbeat)
  except Exception as error:  # whatever the cluster's own library raises
    who = " ".join(f"{name}={value}" for name, value in found.items()) or _cluster()
    raise ValueError(
      f"the processes of this run did not come together ({who}): {str(error).splitlines()[0]}; start all of"
      " them, with a coordinator address that each can reach."
    ) from error
  devices = Counter(device.process_index for device in jax.devices())
  if len(set(devices.values())) > 1:
    seen = ", ".join(f"process {i} has {n}" for i, n in sorted(devices.items()))
    raise ValueError(f"every process needs as many devices as the others: {seen}.")


def check_devices() -> None:
  """Raises ValueError where JAX finds no device of the platforms that it was told to take."""
  try:
    jax.devices()
  except (RuntimeError, AssertionError) as error:  # JAX asserts that one backend of several has begun
    said = f" ({str(error).splitlines()[0]})" if str(error) else ""
    raise ValueError(
      f"JAX finds no device of JAX_PLATFORMS = '{_platforms()}'{said}; install grpojax[cuda] for GPUs or "
      "grpojax[tpu] for TPUs, or unset the variable."
    ) from error


def _by_hand(given: Mapping[str, str | int | None]) -> dict[str, str | int]:
  """Returns the flags about processes, checked; {} where none is set."""
  found = {}
  for name, variable in BY_HAND.items():
    value = os.environ.get(variable) if given.get(name) is None else given[name]
    if value not in (None, ""):
      found[name] = value if name == "coordinator_address" else _number(name, value)
  missing = [f"--{name}" for name in BY_HAND if name not in found]
  count, own = found.get("num_processes"), found.get("process_id")
  if found and missing and count != 1 and not _cluster():
    raise ValueError(
      f"--{' and --'.join(found)} set without {' and '.join(missing)}: several processes need all three"
      f" (or {', '.join(BY_HAND.values())}), one process none."
    )
  if count is not None and count < 1:
    raise ValueError(f"--num_processes={count} must be at least 1.")
  if count is not None and own is not None and not 0 <= own < count:
    raise ValueError(f"--process_id={own} must lie in 0 to {count - 1}, for --num_processes={count}.")
  if ":" not in found.get("coordinator_address", ":"):
    raise ValueError(f"--coordinator_address={found['coordinator_address']} lacks a port: write host:port.")
  return found


def _number(name: str, value: str | int) -> int:
  try:
    return int(value)
  except ValueError:
    raise ValueError(f"--{name}={value} ({BY_HAND[name]}) is not a number.") from None


def _cluster() -> str:
  """Returns the launcher that has started several processes and tells JAX about them; "" for none."""
  if int(os.environ.get("SLURM_NTASKS", 1)) > 1 and "SLURM_STEP_NODELIST" in os.environ:
    return "SLURM"
  # On a TPU's host JAX sets this itself, unless JAX_PLATFORMS says otherwise; one host is a cluster of one.
  return "TPU" if "tpu" in _platforms().split(",") else ""


def _platforms() -> str:
  return jax.config.jax_platforms or ""


def assert_equal(what: Callable[[], Mapping[str, Any]]) -> None:
  """Collective: raises ValueError on all processes, naming what differs and where, unless all are equal."""
  if jax.process_count() == 1:
    return
  own = json.dumps({name: str(value) for name, value in what().items()})
  everyone = [json.loads(text) for text in gather_texts(own)]
  values = {name: [own.get(name, "not set") for own in everyone] for given in everyone for name in given}
  differ = [name for name, seen in values.items() if len(set(seen)) > 1]
  if differ:
    seen = values[differ[0]]
    others = [i for i, value in enumerate(seen) if value != seen[0]]
    more = f" ({', '.join(differ[1:])} differ too)" if len(differ) > 1 else ""
    raise ValueError(
      f"{differ[0]} is {seen[0]} on process 0 and {seen[others[0]]} on process {', '.join(map(str, others))}"
      f"{more}; start the same on all processes."
    )


def code() -> dict[str, str]:
  """Returns the versions of what runs: this package with a hash of its source, and JAX.

  A checkout that is on the path, not installed, has no version; its hash tells it from any other.
  """
  digest = hashlib.sha256()
  here = Path(__file__).parents[1]  # the package
  for path in sorted(here.rglob("*.py")):
    digest.update(f"{path.relative_to(here)}".encode() + path.read_bytes())
  try:
    version = importlib.metadata.version("grpojax")
  except importlib.metadata.PackageNotFoundError:
    version = "not installed"
  return {"grpojax": f"{version} (source {digest.hexdigest()[:12]})", "jax": jax.__version__}


def commit() -> str:
  """Returns the checkout's commit, "+" if tracked files were changed since; "unknown" outside one."""
  if not _git("ls-files", "__init__.py"):  # installed, perhaps below a checkout of something else
    return "unknown"
  return _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "-s", "-uno") else "")


def _git(*words: str) -> str:
  command = ["git", "-C", str(Path(__file__).parents[1]), *words]
  try:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()
  except OSError:  # there is no git
    return ""


def on_process_0(do: Callable[[], Any]) -> None:
  """Collective: calls `do` on process 0 while the others wait; all processes raise its ValueError."""
  refusal = ""
  if jax.process_index() == 0:
    try:
      do()
    except ValueError as error:
      refusal = str(error)
  refusal = gather_texts(refusal)[0]
  if refusal:
    raise ValueError(refusal)


def allgather(x: np.ndarray) -> np.ndarray:
  """Collective: returns the arrays of all processes, which have one shape, [processes, ...].

  It is a sum over all devices, where all but one process's are 0.  JAX's `process_allgather` has groups of
  devices that a program on some of them may have too, and on CPUs XLA mixes up what such programs send.
  """
  x = np.asarray(x)
  if jax.process_count() == 1:
    return x[None]
  data, words = np.frombuffer(x.tobytes(), np.uint8), max(1, -(-x.nbytes // 4))
  if words < SMALL:  # few sizes, and so few programs
    words = 1 << (words - 1).bit_length()
  padded = np.zeros((jax.local_device_count(), words), np.uint32)
  padded[0].view(np.uint8)[: data.size] = data
  mesh, sums = _sums()
  by_device = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("all")), padded)
  with SENDING:  # other threads have programs of their own
    found = sums(by_device)
  rows = np.asarray(found.addressable_data(0)).view(np.uint8)[:, : data.size]
  return np.frombuffer(rows.tobytes(), x.dtype).reshape(jax.process_count(), *x.shape)


@functools.cache
def _sums() -> tuple[Mesh, Callable]:
  """Returns all devices in a row, and the program [devices, words] -> [processes, words], whole on each."""
  mesh = Mesh(np.array(jax.devices()), ("all",))
  process = np.array([device.process_index for device in jax.devices()])
  of_process = process[:, None, None] == np.arange(jax.process_count())[None, :, None]
  sums = lambda x: jnp.where(of_process, x[:, None], jnp.uint32(0)).sum(axis=0, dtype=jnp.uint32)
  return mesh, jax.jit(sums, out_shardings=NamedSharding(mesh, PartitionSpec()))


def allgather_unequal(tree) -> list:
  """Collective: returns every process's tree, whose arrays have equally many rows, on each process others."""
  sizes = allgather(np.array(len(jax.tree.leaves(tree)[0])))

  def gather(x):
    padded = np.zeros((sizes.max(), *x.shape[1:]), x.dtype)
    padded[: len(x)] = x
    return allgather(padded)

  rows = jax.tree.map(gather, tree)
  return [jax.tree.map(lambda x, i=i, n=n: x[i, :n], rows) for i, n in enumerate(sizes)]


def any_process(asks: bool) -> bool:
  """Collective: returns True if some process asks."""
  return bool(allgather(np.array(asks)).any())


def broadcast(x: np.ndarray) -> np.ndarray:
  """Collective: returns process 0's array."""
  return allgather(x)[0]


def gather_texts(own: str) -> list[str]:
  """Collective: returns every process's text."""
  if jax.process_count() == 1:
    return [own]
  return [bytes(data).decode() for data in allgather_unequal(np.frombuffer(own.encode(), np.uint8))]


def end_together(main: Callable) -> Callable:
  """Returns main(argv) that ends this process at once after a failure, so that the others do not wait."""

  def guarded(argv):
    try:
      main(argv)
    except BaseException as error:
      intended = isinstance(error, SystemExit) and not isinstance(error.code, str)  # a status
      if intended or not jax.distributed.is_initialized():
        raise
      _give_up(*_last_words(error))

  return guarded


def _last_words(error: BaseException) -> tuple[str, int]:
  """Returns (what is wrong, the status to end with)."""
  if "Gloo" in str(error):  # on CPUs; elsewhere JAX aborts the process, in its own words
    return (
      f"error: process {jax.process_index()} lost another process of this run, which has ended or cannot be"
      f" reached ({str(error).splitlines()[0]}); all of them end, and the same command on each goes on from"
      " the last checkpoint."
    ), LOST
  if isinstance(error, SystemExit):
    return str(error.code), 1
  return "".join(traceback.format_exception(error)), 1


def _give_up(message: str, status: int) -> None:
  sys.stdout.flush()
  print(message, file=sys.stderr, flush=True)
  leave = threading.Thread(target=jax.distributed.shutdown, daemon=True)  # waits for all, some of them dead
  leave.start()
  leave.join(LAST_WORDS)
  for child in multiprocessing.active_children():
    child.kill()
  os._exit(status)
