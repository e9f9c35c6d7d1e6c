"""Rows of reasoning-gym's generators (https://github.com/open-thought/reasoning-gym), drawn by a process.

    trainer  -- generator, knobs, seed, rows -->  python -m grpojax.data.procedural_worker  -- rows -->

Some generators follow the order of a set of texts: under one PYTHONHASHSEED every host draws the same rows.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

MISSING = "reasoning-gym is not installed; pip install 'grpojax[real]'"


def draw(generator: str, knobs: dict[str, Any], seed: int, rows: int) -> Iterator[dict[str, Any]]:
  """Yields `rows` of a generator, from `seed` on: `entry`, the library's own, and `fault` of its gold answer.

  Raises ValueError for an unknown generator or knob, with the choices.
  """
  job = dict(generator=generator, knobs=knobs, seed=seed, rows=rows)
  command = [sys.executable, "-m", "grpojax.data.procedural_worker"]
  environment = os.environ | dict(PYTHONHASHSEED="0", PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
  with (
    tempfile.TemporaryFile("w+") as stderr,  # a pipe that nobody reads would fill
    subprocess.Popen(
      command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
    ) as child,
  ):
    try:
      child.stdin.write(json.dumps(job))
      child.stdin.close()
      for line in child.stdout:
        row = json.loads(line)
        if "refusal" in row:
          raise ValueError(row["refusal"])
        yield row
      if child.wait():
        stderr.seek(0)
        raise ValueError(f"{generator} drew no more rows ({stderr.read().strip()[-200:]}).")
    finally:
      child.kill()
