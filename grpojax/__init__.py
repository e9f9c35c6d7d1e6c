"""grpojax: the GRPO family of critic-free policy optimisation, exact and composable, in JAX."""

import os
import sys

try:
  os.getcwd()
except FileNotFoundError:  # libraries that are imported next end in its traceback
  sys.exit("error: the current folder has been deleted; go to one that exists and start again.")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # no advice about a missing torch

__all__ = ["run"]


def __getattr__(name: str):
  """Returns `run` at its first use: importing the package costs nothing else."""
  if name == "run":
    from grpojax.tools.library import run

    return run
  raise AttributeError(f"module 'grpojax' has no attribute '{name}'")
