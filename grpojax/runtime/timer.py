"""Wall-clock seconds by phase of a step."""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator

import jax


class Timer:
  """Wall-clock seconds by phase: `with timer.phase("rollout"): ...`, then `timer.take()`.

  A device works through what it was sent while the host is elsewhere, and where the host comes to wait for
  it is the backend's affair: sending a program to CPU devices may wait for all that was sent before.  So
  `follow` notes when the device is done with one piece of work, and a phase may give the seconds until then
  away.
  """

  def __init__(self):
    self.seconds, self.start = {}, time.perf_counter()
    self.watcher, self.ready = None, -float("inf")

  @contextlib.contextmanager
  def phase(self, name: str, behind: str = ""):
    """Adds the block's seconds to a phase; those until what is followed is there go to the phase `behind`.

    A block that names one has to wait for what is followed, or for something that is made from it.
    """
    start = time.perf_counter()
    try:
      with jax.profiler.TraceAnnotation(name):
        yield
    except BaseException:
      behind = ""  # whoever ends the run does not wait for what is followed
      raise
    finally:
      end = time.perf_counter()
      if behind:
        own = min(max(self._followed(), start), end)
        self._add(behind, own - start)
        start = own
      self._add(name, end - start)

  def follow(self, arrays) -> None:
    """Notes, on a thread of its own, when the device has made these arrays; the last call counts."""

    def wait():
      try:
        jax.block_until_ready(arrays)
      except Exception:  # the main thread gets it too, and says so
        return
      self.ready = time.perf_counter()

    self.watcher = threading.Thread(target=wait, daemon=True)
    self.watcher.start()

  def _followed(self) -> float:
    """Returns when the followed arrays were there, as `perf_counter` has it."""
    if self.watcher:
      self.watcher.join()
    return self.ready

  def _add(self, name: str, seconds: float) -> None:
    self.seconds[name] = self.seconds.get(name, 0.0) + seconds

  def over(self, name: str, items: Iterable) -> Iterator:
    """Yields the items; the seconds until each of them are the phase's."""
    items, end = iter(items), object()
    while True:
      with self.phase(name):
        item = next(items, end)
      if item is end:
        return
      yield item

  def merge(self, name: str) -> None:
    """Makes all phases since the last take one phase."""
    self.seconds = {name: sum(self.seconds.values())}

  def take(self) -> dict[str, float]:
    """Returns seconds since the last take, by phase; "time/step" is the total, "time/host" the rest."""
    now = time.perf_counter()
    taken = {f"time/{name}": value for name, value in self.seconds.items()}
    taken["time/step"] = now - self.start
    taken["time/host"] = taken["time/step"] - sum(self.seconds.values())
    self.seconds, self.start = {}, now
    return taken
