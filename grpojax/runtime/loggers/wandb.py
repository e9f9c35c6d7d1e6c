"""Weights & Biases.  With WANDB_MODE=offline it writes wandb/ of the workdir, which `wandb sync` sends."""

import wandb

from grpojax.runtime import console, loggers


def lacks() -> str:
  """Returns what W&B asks for before a run; "" for nothing."""
  online = wandb.setup().settings.mode in ("online", "run", "shared")
  if not online or wandb.login(prompt=False, verify=False):
    return ""
  return "wandb has no API key; run `wandb login`, or set WANDB_API_KEY, or WANDB_MODE=offline"


class Logger:
  """A W&B run under the run's own id.  Its axes are our steps, as kinds of records count their own."""

  def __init__(self, run: loggers.Run):
    self.run = wandb.init(
      project=run.project, name=run.name, id=run.id, config=run.config, dir=run.folder, resume="allow",
      allow_val_change=True, settings=wandb.Settings(silent=True),
    )  # fmt: skip
    for kind in ("cold_start", "train", "eval"):
      self.run.define_metric(f"{kind}/*", step_metric=f"{kind}/step")
    console.say(f"wandb: {self.run.dir if self.run.offline else self.run.url}")

  def write(self, kind: str, step: int, values: dict[str, float]) -> None:
    """Logs one record."""
    self.run.log({f"{kind}/step": step, **loggers.of_kind(kind, values)})

  def completions(self, step: int, rows: list[dict]) -> None:
    """Logs one group as a table."""
    table = wandb.Table(columns=list(rows[0]), data=[list(row.values()) for row in rows])
    self.run.log({"train/step": step, "train/completions": table})

  def close(self) -> None:
    """Ends the W&B run, which may be resumed."""
    self.run.finish()
