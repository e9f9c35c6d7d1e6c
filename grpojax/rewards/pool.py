"""Warm processes for functions that may hang: every call has a time limit, and a hard kill at it.

    trainer  -- one line of JSON -->  python -m grpojax.rewards.pool  -- pebble -->  workers

Between the trainer and the workers stands a server process: under the trainer itself, multiprocessing would
import the trainer's main module, and with it jax, into every worker.  The server imports the function's
module and forks workers, so that replacing a killed one is cheap.
No worker outlives the trainer, however the trainer ends.
"""

import contextlib
import importlib
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time

_LOCK = threading.Lock()
_SERVERS: dict[tuple[str, int], subprocess.Popen] = {}
_MEMORY = 2 << 30  # bytes of address space of one worker
_MAX_TASKS = 2000  # then a worker is replaced: caches grow


def call(function: str, arguments: list, *, timeout: float, workers: int) -> list:
  """Calls `function(*args)` for every args, each in at most `timeout` seconds from its start.

  `function` is 'module:name'; arguments and results are JSON.  A call without a result is an exception in
  the list: TimeoutError, or RuntimeError with the worker's own words.  Any thread may call this; it waits
  without holding the GIL, and calls from several threads take turns.
  """
  if not arguments:
    return []
  with _LOCK:
    server = _server(function, workers)
    try:
      server.stdin.write(json.dumps([timeout, arguments]) + "\n")
      server.stdin.flush()
      outcomes = json.loads(server.stdout.readline())
    except BaseException as error:  # also Ctrl-C: half a conversation cannot be continued
      with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)  # its workers too
      server.wait()
      del _SERVERS[function, workers]
      if isinstance(error, OSError | ValueError):
        message = f"the worker pool of {function} died; the next call starts a new one"
        raise RuntimeError(message) from error
      raise
  return [value if not kind else _exception(kind, message) for value, kind, message in outcomes]


def _exception(kind: str, message: str) -> Exception:
  return TimeoutError(message) if kind == "TimeoutError" else RuntimeError(f"{kind}: {message}")


def _server(function: str, workers: int) -> subprocess.Popen:
  key = function, workers
  if key not in _SERVERS:
    environment = dict(
      os.environ,
      JAX_PLATFORMS="cpu",  # nothing here imports jax; what does must not claim the accelerator
      TPU_VISIBLE_DEVICES="",
      PYTHONPATH=os.pathsep.join(path for path in sys.path if path),
    )
    _SERVERS[key] = subprocess.Popen(
      [sys.executable, "-m", __name__, function, str(workers), str(os.getpid())],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      env=environment,
      text=True,
      start_new_session=True,  # Ctrl-C is the trainer's to handle; and to be killed as one group
    )
  return _SERVERS[key]


def serve(function: str, workers: int, trainer: int) -> None:
  """Answers the trainer's lines until there are no more."""
  from pebble import ProcessPool

  threading.Thread(target=_end_with, args=[trainer], daemon=True).start()
  answers = os.fdopen(os.dup(1), "w")
  os.dup2(2, 1)  # what libraries print is no answer
  module, _, name = function.partition(":")
  context = multiprocessing.get_context("forkserver")
  context.set_forkserver_preload([module])
  fn = getattr(importlib.import_module(module), name)
  with ProcessPool(workers, max_tasks=_MAX_TASKS, initializer=_confine, context=context) as pool:
    for line in sys.stdin:
      timeout, arguments = json.loads(line)
      futures = [pool.schedule(fn, args=args, timeout=timeout) for args in arguments]
      print(json.dumps([_outcome(future, timeout) for future in futures]), file=answers, flush=True)


def _outcome(future, timeout: float) -> tuple:
  """Returns (value, "", "") or (None, name of the exception, its words)."""
  try:
    return future.result(), "", ""
  except TimeoutError:
    return None, "TimeoutError", f"no result in {timeout:g} s"
  except Exception as error:
    return None, type(error).__name__, str(error)[:200]


def _confine() -> None:
  """Limits a worker's memory, so that it raises MemoryError and takes none from the trainer."""
  if sys.platform == "linux":
    allowed = resource.getrlimit(resource.RLIMIT_AS)[1]
    memory = _MEMORY if allowed == resource.RLIM_INFINITY else min(_MEMORY, allowed)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _end_with(trainer: int) -> None:
  """Kills this session's processes, hanging workers too, once the trainer is gone.

  The end of the pipe is no sign of that: another forked child may hold the pipe open.
  """
  while os.getppid() == trainer:
    time.sleep(0.5)
  os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
  serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
