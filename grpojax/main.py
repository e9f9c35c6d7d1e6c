"""python -m grpojax.main --config=configs/gspo.py [--workdir=runs/gspo] [--config.steps=100 ...]

Ends with 0 when the run is finished, with 75 (EX_TEMPFAIL: "start me again") when it was stopped by Ctrl-C or
SIGTERM and has saved, else with an error.
"""

import os
import sys
from pathlib import Path

import jax
from absl import flags

from grpojax import commandline, layout, train
from grpojax import config as config_lib

WORKDIR = flags.DEFINE_string("workdir", None, "Where the run lives; default runs/<config.name>.")


def main(argv):
  config = commandline.start(argv)
  workdir = Path(WORKDIR.value or f"runs/{config.name}").absolute()
  try:
    if config.print_sharding:
      config_lib.check(config, jax.device_count())
      return layout.show(config)
    job = train.prepare(config, workdir)
  except ValueError as error:  # a config or a dataset that cannot work, said in one sentence
    sys.exit(f"error: {error}")
  try:
    finished = train.run(job)
  except KeyboardInterrupt:  # before the first step, or a second one
    sys.exit("Interrupted; the same command goes on from the last checkpoint, if there is one.")
  if not finished:
    sys.exit(os.EX_TEMPFAIL)


if __name__ == "__main__":
  commandline.run(main)
