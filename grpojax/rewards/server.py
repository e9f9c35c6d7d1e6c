"""Server process between the trainer and workers that may hang: its start, and what ends it and its workers.

    trainer  -- lines of JSON -->  server  -- forkserver -->  workers

Under the trainer itself, multiprocessing would import the trainer's main module, and with it jax, into every
worker.  The server imports what the workers need and lets them be forked, so that replacing a killed one is
cheap.  No worker outlives the trainer, however the trainer ends.
"""

import contextlib
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from pathlib import Path

from grpojax.runtime import parent_death

START = 60.0  # seconds that a server may take beside its calls, to import and to fork
PRELOAD = "grpojax.rewards.forkserver_preload"  # by its name: who imports it is tied to its parent
_MEMORY = 2 << 30  # bytes of address space of one worker
_STARTER = ThreadPoolExecutor(1)  # a thread that lasts: servers die with the thread that started them


def start(module: str, arguments: list[str], text: bool = True) -> subprocess.Popen:
  """Starts `python -m module arguments... PID`, with pipes as its stdin and stdout; PID is this process's."""
  environment = dict(
    os.environ,
    JAX_PLATFORMS="cpu",  # nothing here imports jax; what does must not claim the accelerator
    TPU_VISIBLE_DEVICES="",
    PYTHONHASHSEED="0",  # some libraries draw in the order of a set
    PYTHONWARNINGS="ignore:resource_tracker:UserWarning",  # a killed pool's semaphores: nobody's business
    PYTHONPATH=os.pathsep.join(path for path in sys.path if path),
  )
  return _STARTER.submit(
    subprocess.Popen,
    [sys.executable, "-m", module, *arguments, str(os.getpid())],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    env=environment,
    text=text,
    start_new_session=True,  # Ctrl-C is the trainer's to handle; and to be killed as one session
  ).result()


def kill(server: subprocess.Popen) -> None:
  """Kills a server with its session, and waits for it."""
  kill_session(server.pid)
  server.wait()


def guard(
  trainer: int, modules: list[str], working: threading.Event
) -> tuple[int, multiprocessing.context.BaseContext]:
  """Ties this server to the trainer; returns a descriptor for answers and the context of its workers.

  `modules` are imported once, for all workers.  What libraries print goes to stderr: it is no answer.
  Workers that somebody stopped are looked for while `working` is set: somebody waits for them.
  """
  parent_death.die_with_parent()  # also while it is stopped
  threading.Thread(target=_end_with, args=[trainer], daemon=True).start()
  threading.Thread(target=_kill_stopped, args=[working], daemon=True).start()
  answers = os.dup(1)
  os.dup2(2, 1)
  context = multiprocessing.get_context("forkserver")
  context.set_forkserver_preload([PRELOAD, *modules])
  forkserver.ensure_running()  # by this thread: the kernel's "parent" is the thread that started a process
  return answers, context


def confine() -> None:
  """Limits a worker's memory, so that it raises MemoryError and takes none from the trainer."""
  parent_death.die_with_parent()
  if sys.platform == "linux":
    allowed = resource.getrlimit(resource.RLIMIT_AS)[1]
    memory = _MEMORY if allowed == resource.RLIM_INFINITY else min(_MEMORY, allowed)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def state(pid: int) -> tuple[str, int]:
  """Returns a process's state, a letter, and its session; ("", 0) without /proc, or where it has ended."""
  try:
    state, _, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
  except OSError:
    return "", 0
  return state, int(session)


def kill_session(session: int) -> None:
  """Kills all processes of a session, whatever group they are in; its leader, who may be the caller, last."""
  for pid in _members():
    if pid != session and state(pid)[1] == session:
      with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
  with contextlib.suppress(ProcessLookupError):
    os.killpg(session, signal.SIGKILL)


def _members() -> list[int]:
  return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def _kill_stopped(working: threading.Event) -> None:
  """Kills workers that somebody stopped, while `working`: their calls are done again."""
  session = os.getsid(0)
  while working.wait():
    time.sleep(0.5)
    for pid in _members():
      if state(pid) == ("T", session):
        with contextlib.suppress(ProcessLookupError):
          os.kill(pid, signal.SIGKILL)


def _end_with(trainer: int) -> None:
  """Kills this session's processes, hanging workers too, once the trainer is gone.

  The end of the pipe is no sign of that: another forked child may hold the pipe open.
  """
  while os.getppid() == trainer:
    time.sleep(0.5)
  kill_session(os.getsid(0))
