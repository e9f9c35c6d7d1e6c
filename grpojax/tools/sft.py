"""Fine-tunes on given answers: grpojax sft base [--config.sft.path=chats.jsonl] [--workdir=runs/sft ...]

config.sft has what this kind of training asks for; model, data, adapters, evaluation, checkpoints and devices
are those of `grpojax train`, and so are the workdir, what a stop leaves, and the exit statuses.
"""

from absl import flags

from grpojax.config import commandline
from grpojax.runtime import errors
from grpojax.train import sft

WORKDIR = flags.DEFINE_string(
  "workdir", None, "Where the run lives: a folder or gs://...; default runs/NAME-sft", allow_override=True
)


def main(argv):
  """Trains by the config of the flags; exits as `grpojax train` does."""
  config = commandline.start(argv)
  workdir = commandline.workdir(WORKDIR.value, f"runs/{config.name}-sft")
  job = sft.prepare(config, workdir)
  errors.to_the_end(workdir, lambda: sft.run(job))


def command() -> None:
  """Reads the flags and trains."""
  commandline.run(main)
