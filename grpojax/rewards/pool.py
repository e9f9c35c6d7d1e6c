"""Warm processes for functions that may hang: every call has a time limit, and a hard kill at it.

    trainer  -- one line of JSON -->  python -m grpojax.rewards.pool  -- pebble -->  workers

Between the trainer and the workers stands a server (server.py), which imports the function's module once.
A call whose worker was killed, stopped or ran out of memory is done once more, alone in a new worker: what
somebody else did to a worker changes no number, and what a call does to its own worker happens again.  So are
all calls of a server that was killed or stopped, in a new server.
No worker outlives the trainer, however the trainer ends.
"""

import importlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool

from grpojax.rewards import server as servers

_LOCK = threading.Lock()
_SERVERS: dict[tuple[str, int], subprocess.Popen] = {}
_MAX_TASKS = 2000  # then a worker is replaced: caches grow
_SERVER_TRIES = 3
_AGAIN = ("ProcessExpired", "MemoryError")  # of a worker, perhaps for no fault of its call


def check(timeout: float, workers: int) -> None:
  """Raises ValueError for knobs that `call` cannot take."""
  if not timeout > 0:
    raise ValueError(f"timeout = {timeout!r} must be a number of seconds above 0.")
  if not isinstance(workers, int) or workers < 1:
    raise ValueError(f"workers = {workers!r} must be a number of processes, 1 or more.")


def call(function: str, arguments: list, *, timeout: float, workers: int) -> list:
  """Calls `function(*args)` for every args, each in at most `timeout` seconds from its start.

  `function` is 'module:name'; arguments and results are JSON.  A call without a result is an exception in
  the list: TimeoutError, or RuntimeError with the worker's own words.  Any thread may call this; it waits
  without holding the GIL, and calls from several threads take turns.  Raises RuntimeError where one server
  after the other died.
  """
  if not arguments:
    return []
  with _LOCK:
    for again in reversed(range(_SERVER_TRIES)):
      try:
        outcomes = _ask(function, workers, timeout, arguments)
        break
      except (OSError, ValueError) as error:
        if not again:
          raise RuntimeError(f"{_SERVER_TRIES} worker pools of {function} died ({error})") from error
  return [value if not kind else _exception(kind, message) for value, kind, message in outcomes]


def _ask(function: str, workers: int, timeout: float, arguments: list) -> list:
  """Returns the outcomes of a server.  Raises OSError or ValueError, with the server killed, without them."""
  server = _server(function, workers)
  try:
    server.stdin.write(json.dumps([timeout, arguments]) + "\n")
    server.stdin.flush()
    # Each call twice, all one after the other on each worker.
    _wait(server, servers.START + 2 * timeout * -(-len(arguments) // workers))
    return json.loads(server.stdout.readline())
  except BaseException:  # also Ctrl-C: half a conversation cannot be continued
    servers.kill(server)  # its workers too
    del _SERVERS[function, workers]
    raise


def _wait(server: subprocess.Popen, seconds: float) -> None:
  """Waits for a server's answer.  Raises OSError where it was stopped, or nothing came."""
  end = time.monotonic() + seconds
  with selectors.DefaultSelector() as selector:
    selector.register(server.stdout, selectors.EVENT_READ)
    while not selector.select(1.0):
      if servers.state(server.pid)[0] == "T":
        raise ChildProcessError("it was stopped")
      if time.monotonic() > end:
        raise TimeoutError(f"it gave no answer in {seconds:g} s")


def _exception(kind: str, message: str) -> Exception:
  return TimeoutError(message) if kind == "TimeoutError" else RuntimeError(f"{kind}: {message}")


def _server(function: str, workers: int) -> subprocess.Popen:
  key = function, workers
  if key not in _SERVERS:
    _SERVERS[key] = servers.start(__name__, [function, str(workers)])
  return _SERVERS[key]


def serve(function: str, workers: int, trainer: int) -> None:
  """Answers the trainer's lines until there are no more."""
  from pebble import ProcessPool

  module, _, name = function.partition(":")
  working = threading.Event()
  descriptor, context = servers.guard(trainer, [module], working)
  answers = os.fdopen(descriptor, "w")
  fn = getattr(importlib.import_module(module), name)
  options = dict(initializer=servers.confine, context=context)
  with ProcessPool(workers, max_tasks=_MAX_TASKS, **options) as pool:
    for line in sys.stdin:
      working.set()
      timeout, arguments = json.loads(line)
      outcomes = _outcomes(pool, fn, timeout, arguments)
      again = [i for i, (_, kind, _) in enumerate(outcomes) if kind in _AGAIN]
      if again:
        with ProcessPool(workers, max_tasks=1, **options) as alone:  # each call has a worker of its own
          second = _outcomes(alone, fn, timeout, [arguments[i] for i in again])
        outcomes = [dict(zip(again, second, strict=True)).get(i, first) for i, first in enumerate(outcomes)]
      working.clear()
      print(json.dumps(outcomes), file=answers, flush=True)


def _outcomes(pool, fn, timeout: float, arguments: list) -> list[tuple]:
  """Returns the outcomes of the calls.  Ends this server where idle workers were killed."""
  try:
    futures = [pool.schedule(fn, args=args, timeout=timeout) for args in arguments]
    return [_outcome(future, timeout) for future in futures]
  except RuntimeError:  # pebble's; the trainer asks a new server
    servers.kill_session(os.getsid(0))
    raise


def _outcome(future, timeout: float) -> tuple:
  """Returns (value, "", "") or (None, name of the exception, its words)."""
  try:
    return future.result(), "", ""
  except TimeoutError:
    return None, "TimeoutError", f"no result in {timeout:g} s"
  except BrokenProcessPool:
    raise
  except Exception as error:
    return None, type(error).__name__, str(error)[:200]


if __name__ == "__main__":
  serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
