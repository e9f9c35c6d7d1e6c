"""TensorBoard: event files in the workdir, a run for each kind of record.

tensorboardX's own SummaryWriter has a thread, which ends at the first error of the disk; its caller then
waits for ever, because nothing empties the queue of ten numbers.
"""

import time
from pathlib import Path

from tensorboardX import summary
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog

from grpojax.runtime import loggers


class Logger:
  """Writer of the workdir's tensorboard/, on the run's own thread: its disk is that of all records.

  TensorBoard hides, run by run, what an earlier start wrote of steps that are taken again; the cold start
  is a run of its own, to survive it.
  """

  name, lost = "tensorboard", 0  # a disk that takes no event ends the run

  def __init__(self, run: loggers.Run):
    purge = run.resume_step + 1 if run.resume_step else 0
    first = {"cold_start": None if run.resume_step else 0, "train": purge, "eval": purge}
    self.files = {kind: _open(run.folder / "tensorboard" / kind, step) for kind, step in first.items()}

  def write(self, kind: str, step: int, values: dict[str, float]) -> None:
    """Adds one record's scalars."""
    for name, value in values.items():
      self._add(kind, step, summary.scalar(name, value))

  def completions(self, step: int, rows: list[dict]) -> None:
    """Adds one group as a text, verbatim: it is indented, which Markdown takes as it is."""
    parts = [f"    {rows[0]['prompt']}".replace("\n", "\n    ")]
    for row in rows:
      ended = "" if row["ended"] else ", cut"
      parts.append(f"reward {row['reward']}, {row['length']} tokens{ended}")
      parts.append(f"    {row['completion']}".replace("\n", "\n    "))
    self._add("train", step, summary.text("completions", "\n\n".join(parts)))

  def _add(self, kind: str, step: int, found) -> None:
    self.files[kind].write_event(Event(wall_time=time.time(), step=step, summary=found))

  def flush(self) -> None:
    """Puts all events on disk."""
    for file in self.files.values():
      file.flush()

  def close(self) -> None:
    """Closes the files."""
    for file in self.files.values():
      file.close()


def _open(folder: Path, purge: int | None) -> EventsWriter:
  """Opens one run, in which steps from `purge` on are hidden."""
  folder.mkdir(parents=True, exist_ok=True)
  file = EventsWriter(str(folder / "events"))
  if purge is not None:
    file.write_event(Event(step=purge, session_log=SessionLog(status=SessionLog.START)))
  return file
