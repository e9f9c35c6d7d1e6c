"""Trains: grpojax train gspo [--workdir=runs/gspo] [--config.steps=100 ...]

Ends with 0 when the run is finished, with 75 (EX_TEMPFAIL: "start me again") when it was stopped by Ctrl-C or
SIGTERM and has saved, else with an error.
"""


import jax
from absl import flags

from grpojax import train
from grpojax.config import check as config_lib
from grpojax.config import commandline
from grpojax.runtime import errors
from grpojax.train import print_sharding

WORKDIR = flags.DEFINE_string("workdir", None, "Where the run lives: a folder or gs://...; default runs/NAME")


def main(argv):
  """Trains by the config of the flags, or prints its sharding; exits as the header says."""
  config = commandline.start(argv)
  workdir = commandline.workdir(WORKDIR.value, f"runs/{config.name}")
  if config.sft.path:
    raise ValueError(
      f"config.sft.path = '{config.sft.path}' is read by `grpojax sft` alone; use that command, or leave the"
      " key out."
    )
  if config.print_sharding:
    config_lib.check(config, jax.device_count())
    print_sharding.show(config)
    return
  job = train.prepare(config, workdir)
  errors.to_the_end(workdir, lambda: train.run(job))


def command() -> None:
  """Reads the flags and trains."""
  commandline.run(main)


if __name__ == "__main__":
  command()
