"""The workdir of a run: one process at a time may write in it, and it goes on from what it has saved."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax
from ml_collections import ConfigDict

from grpojax.config import workdir as workdir_lib
from grpojax.config.workdir import Run
from grpojax.runtime import console, lock, processes
from grpojax.runtime import metrics as metrics_lib


@contextlib.contextmanager
def own(workdir: Path, config: ConfigDict) -> Iterator["Owner"]:
  """Collective: holds the workdir in the block, for process 0 and so for all.

  Raises ValueError where it cannot be made, where another process holds it, where it is another config's, and
  where its checkpoints have gone.
  """
  with contextlib.ExitStack() as stack:
    owner = Owner(workdir)
    processes.on_process_0(lambda: owner.claim(stack, config))
    yield owner


class Owner:
  """The hold of process 0 on its workdir; on the other processes every method does nothing."""

  def __init__(self, workdir: Path):
    self.workdir, self.active = workdir, jax.process_index() == 0
    self.run, self.check = Run("", ""), lambda: None

  def claim(self, stack: contextlib.ExitStack, config: ConfigDict) -> None:
    """Locks the workdir and writes its config.  Raises ValueError as `own` says."""
    self.check = stack.enter_context(lock.hold_folder(self.workdir, "--workdir", "a run"))
    self.run = workdir_lib.claim(self.workdir, config)
    folder = self.workdir / "checkpoints"
    local = isinstance(self.workdir, Path)  # a bucket has no empty folders
    if local and not folder.exists() and _trained(self.workdir):
      raise ValueError(self._gone(f"{folder} has gone, and the workdir has records"))

  def check_resumed(self, step: int, files: Path) -> None:
    """Collective: raises ValueError where the run has saved a step and would begin anew.

    Says which records up to `step` are lost; `files` is the folder on this machine that has them.
    """
    processes.on_process_0(lambda: self._check_resumed(step, files))

  def _check_resumed(self, step: int, files: Path) -> None:
    saved, folder = self.run.saved, self.workdir / "checkpoints"
    if saved and not step:
      raise ValueError(self._gone(f"the run has saved step {saved}, and {folder} is empty"))
    if step < saved:
      console.say(f"note: the run had saved step {saved}; it goes on from {step}, the newest that is there")
    lost = sorted(set(range(1, step + 1)) - set(_trained(files)))
    if lost:
      console.say(f"note: metrics.jsonl has lost the records of {len(lost)} steps ({_spans(lost)})")

  def _gone(self, what: str) -> str:
    return (
      f"--workdir={self.workdir}: {what}; bring its checkpoints back (is a disk not mounted?), or choose"
      " another --workdir to begin anew."
    )

  def note_saved(self, step: int) -> None:
    """Notes that the checkpoint of `step` is on disk."""
    if self.active and step > self.run.saved:
      self.run = workdir_lib.note(self.workdir, self.run._replace(saved=step))


def _trained(files: Path) -> list[int]:
  """Returns the steps that metrics.jsonl has training records of."""
  return [record["step"] for record in metrics_lib.read(files) if record["kind"] == "train"]


def _spans(steps: list[int]) -> str:
  """Returns [1, 2, 3, 7] as "1 to 3, 7"."""
  starts = [i for i, step in enumerate(steps) if i == 0 or steps[i - 1] != step - 1]
  spans = [steps[a:b] for a, b in zip(starts, [*starts[1:], len(steps)], strict=True)]
  return ", ".join(f"{span[0]} to {span[-1]}" if len(span) > 1 else f"{span[0]}" for span in spans)
