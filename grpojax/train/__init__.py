"""Training: `prepare` makes a run from a config, `run` trains it.  loop.py is the map of the program."""

from grpojax.train.loop import run
from grpojax.train.setup import prepare

__all__ = ["prepare", "run"]
