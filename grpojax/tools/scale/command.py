"""grpojax scale RUN... [--compute=tokens] [--burn_in=0] [--out=runs/scale]

Fits accuracy against compute to the evaluations of runs, and asks whether the first half predicts the end.  A
RUN is a run's --workdir; those that differ in their seed alone are one recipe.
"""

import argparse
import json
import math
import shlex
import sys
from pathlib import Path

import rich.console
import rich.markup
import rich.table

from grpojax.runtime import storage
from grpojax.tools.scale import page, runs
from grpojax.tools.scale.estimate import estimate


def command() -> None:
  """Reads the command line, fits, and writes scale.json and scale.html."""
  parser = argparse.ArgumentParser(prog="grpojax scale", description=__doc__, allow_abbrev=False)
  parser.add_argument("runs", metavar="RUN", nargs="*", help="a run's --workdir")
  parser.add_argument("--compute", choices=tuple(runs.COMPUTE), default="tokens", help="unit of C")
  parser.add_argument("--burn_in", type=float, default=0.0, help="leave out evaluations before this compute")
  parser.add_argument("--out", default="runs/scale", help="folder of the results")
  flags = parser.parse_args()
  out, found = storage.local(flags.out, "--out"), collect(flags.runs, flags.compute, flags.burn_in)
  show(out, found | dict(command=shlex.join(["grpojax", "scale", *sys.argv[1:]])))


def collect(names: list[str], unit: str, burn_in: float) -> dict:
  """Returns what scale.json has: recipes by A, the highest first.  Raises ValueError."""
  if not 0 <= burn_in < math.inf:
    raise ValueError(f"--burn_in={burn_in:g} is an amount of compute, at least 0.")
  rows = [estimate(recipe, burn_in) for recipe in runs.load(names, unit)]
  rows.sort(key=lambda row: -row["fit"]["A"])
  return dict(metric=runs.METRIC, unit=unit, burn_in=burn_in, rows=rows)


def show(out: Path, found: dict) -> None:
  """Writes scale.json and scale.html, and prints the table and what it says."""
  storage.make_folder(out, "--out")
  text = json.dumps(found, indent=1, allow_nan=False) + "\n"
  storage.write(out / "scale.json", text, encoding="utf-8")
  written = page.write(out, found)
  console = rich.console.Console(highlight=False)
  table = rich.table.Table()
  for cells in zip(page.HEAD, *page.body(found), strict=True):  # a column a recipe fits most terminals
    if not table.columns:
      for label in cells:
        table.add_column(rich.markup.escape(label), justify="right" if table.columns else "left")
    else:
      table.add_row(*map(rich.markup.escape, cells))
  console.print(table)
  for line in [*page.verdicts(found), *page.notes(found)]:
    console.print(line, markup=False)
  console.print(f"figures: {written}", soft_wrap=True, markup=False)
