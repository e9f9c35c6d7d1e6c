"""A thread between a run and a logger that may be slow, or out of reach: neither stops the run."""

import json
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from etils import epath

from grpojax.runtime import console, storage

LONGEST = 10_000  # records that may wait
PATIENCE = 60  # seconds that the end of a run waits for what has not been sent
_SHOWN = 200  # characters of somebody else's message


class Feed:
  """Hands records to the logger that `make` opens, on a thread of its own.

  The file `mark` holds the last step of each kind that was handed over.  A run that goes on from a checkpoint
  takes some steps again; the logger has them, and gets later ones only.
  """

  def __init__(self, name: str, make: Callable[[], Any], mark: Path | epath.Path):
    self.name, self.make, self.mark = name, make, mark
    self.taken = self.handed_over = self.lost = 0  # records
    self.sent = storage.read_json(mark) if mark.exists() else {}
    self.before = dict(self.sent)
    mark.parent.mkdir(parents=True, exist_ok=True)
    self.queue = queue.SimpleQueue()
    self.thread = threading.Thread(target=self._hand_over, name=f"logger {name}", daemon=True)
    self.thread.start()

  def write(self, kind: str, step: int, values: dict[str, float]) -> None:
    """Takes a record, unless an earlier start of the run has handed it over."""
    self._put(kind, step, values)

  def completions(self, step: int, rows: list[dict]) -> None:
    """Takes a group of completions likewise."""
    self._put("completions", step, rows)

  def flush(self) -> None:
    """Does nothing: no checkpoint waits for a network."""

  def close(self) -> None:
    """Waits for what is not handed over yet, with bounds, and says how much the logger has not got."""
    self.queue.put(None)
    self.thread.join(1)
    if self.thread.is_alive():
      console.say(f"waiting for {self.name}, {PATIENCE} s at most ...")
      self.thread.join(PATIENCE)
    if missing := self.taken - self.handed_over:
      console.say(f"note: {self.name} has not got {missing} of this run's records; metrics.jsonl has all")

  def _put(self, kind: str, step: int, what: Any) -> None:
    if step <= self.before.get(kind, -1):
      return
    self.taken += 1
    if self.queue.qsize() < LONGEST:
      self.queue.put((kind, step, what))
    else:
      self._lose(f"{LONGEST} records wait")

  def _hand_over(self) -> None:
    logger = None
    for kind, step, what in iter(self.queue.get, None):
      try:
        logger = logger or self.make()
        self._note(kind, step)  # first, so that nothing is sent twice, whenever the process ends
        if kind == "completions":
          logger.completions(step, what)
        else:
          logger.write(kind, step, what)
        self.handed_over += 1
      except Exception as error:
        self._lose(f"{type(error).__name__}: {' '.join(str(error).split())[:_SHOWN]}")
    if logger:
      try:
        logger.close()
      except Exception as error:
        console.say(f"note: {self.name} did not close ({type(error).__name__}: {error!s:.{_SHOWN}})")

  def _note(self, kind: str, step: int) -> None:
    self.sent[kind] = step
    storage.write(self.mark, json.dumps(self.sent))

  def _lose(self, why: str) -> None:
    """Counts a record, and says the first."""
    self.lost += 1
    if self.lost == 1:
      console.say(f"note: {self.name} takes no record ({why}); the run goes on, and metrics.jsonl has all")
