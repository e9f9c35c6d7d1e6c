"""trackio: on this machine, for `trackio show`, or on a Space of the hub that TRACKIO_SPACE_ID names."""

import trackio

from grpojax.runtime import loggers


class Logger:
  """A trackio run whose name has the run's id in it.  A Space that it makes is private."""

  def __init__(self, run: loggers.Run):
    name = f"{run.name}-{run.id[:8]}"
    self.run = trackio.init(
      run.project, name, config=run.config, resume="allow", private=True, embed=False
    )

  def write(self, kind: str, step: int, values: dict[str, float]) -> None:
    """Logs one record."""
    self.run.log(loggers.of_kind(kind, values), step)

  def completions(self, step: int, rows: list[dict]) -> None:
    """Logs one group as a table."""
    self.run.log({"train/completions": trackio.Table(data=rows)}, step)

  def close(self) -> None:
    """Ends the trackio run, which may be resumed."""
    self.run.finish()
