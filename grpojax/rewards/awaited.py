"""Calls of `async def` rewards, which wait for others: side by side, and beside whatever the caller does.

All go on in one event loop of the process, in a thread of its own, so that a client of a server may keep its
connections from step to step, and a notebook may have a loop that runs already.
"""

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any


def is_async(fn: Callable) -> bool:
  """Returns whether a function, or an object that is called, is `async def`."""
  return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def begin(calls: Iterable[Coroutine]) -> Future:
  """Begins calls and waits for none; the future gives, in their order, what each returned or raised."""

  async def together():
    return await asyncio.gather(*map(_outcome, calls))

  return asyncio.run_coroutine_threadsafe(together(), _loop())


def told(begun: Future) -> Callable:
  """Returns a function that tells what one call after the other returned, or raises what it raised; waits."""
  outcomes = iter(begun.result())

  def tell(*_):
    outcome = next(outcomes)
    if isinstance(outcome, BaseException):
      raise outcome
    return outcome

  return tell


def waiting(fn: Callable) -> Callable:
  """Returns an `async def` function as one that waits for its result."""
  return functools.wraps(fn)(lambda *seen, **knobs: told(begin([fn(*seen, **knobs)]))())


async def _outcome(call: Coroutine) -> Any:
  try:
    return await call
  except BaseException as error:  # SystemExit too, which would end the loop and let everyone wait for ever
    return error


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
  loop = asyncio.new_event_loop()
  threading.Thread(target=loop.run_forever, name="rewards", daemon=True).start()
  return loop


os.register_at_fork(after_in_child=_loop.cache_clear)  # threads are not forked
