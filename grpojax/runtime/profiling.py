"""A trace of a few steps, for TensorBoard's profile plugin or XProf."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import jax

from grpojax.runtime import console


@contextlib.contextmanager
def profiler(steps: int, workdir: Path, first: int) -> Iterator[Callable[[int], None]]:
  """Yields a function to call before each step after `first`: `with profiler(...) as at: at(step)`.

  Traces `steps` steps into `workdir`/profile; not the first of this process, which compiles.
  """
  begin, running = first + 2, False

  def stop():
    nonlocal running
    if running:
      jax.profiler.stop_trace()
      console.say(f"profile of the steps from {begin} on: tensorboard --logdir={workdir}/profile")
    running = False

  def at(step: int):
    nonlocal running
    if step == begin + steps:
      stop()
    if steps and step == begin:
      jax.profiler.start_trace(workdir / "profile")
      running = True

  try:
    yield at
  finally:
    stop()
