"""What the tests of the pod check share."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

needs_libtpu = pytest.mark.skipif(
  not importlib.util.find_spec("libtpu"), reason="needs a TPU's compiler: grpojax[pods]"
)
SIZES = {"data": 2, "tensor": 4}  # of the mesh that the programs are said to be for


def flops(found):
  return sum(r.times * r.flops for r in found.rows)


def python(*arguments: str) -> subprocess.CompletedProcess:
  """As users compile: conftest.py's flags end a TPU's compiler, and what is not optimised has other FLOPs."""
  ours = "XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS"
  theirs = {name: value for name, value in os.environ.items() if name not in ours}
  command = [sys.executable, *arguments]
  return subprocess.run(command, cwd=Path(__file__).parents[1], env=theirs, capture_output=True, text=True)
