"""python -m experiments.estimator_lab [--fast] [--out=DIR]"""

import argparse
import time

import jax
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from experiments.estimator_lab import claims, figures, report, sweeps
from experiments.estimator_lab.size import DEFAULT, FAST
from grpojax.runtime import errors, storage


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(prog="python -m experiments.estimator_lab")
  parser.add_argument("--fast", action="store_true", help="few policies, groups and lengths")
  parser.add_argument("--out", default="runs/estimator_lab", help="folder of the results")
  flags = parser.parse_args(argv)
  size, start = FAST if flags.fast else DEFAULT, time.perf_counter()
  out = storage.local(flags.out, "--out")
  storage.make_folder(out, "--out")

  found = [claim(size) for claim in tqdm(claims.ALL, desc="claims")]
  results = dict(claims=found, variants=sweeps.table(size), sweeps=sweeps.sweeps(size), size=size._asdict())
  report.write(out, results)
  figures.draw(out, results)

  table = Table("claim", "source", "kind", "verdict", title="What the literature says, and what holds here")
  for claim in found:
    table.add_row(claim.text, claim.source, "identity" if claim.identity else "finding", claim.verdict)
  console = Console()
  console.print(table)
  console.print(f"{time.perf_counter() - start:.0f} s; tables, numbers and figures are in {out}")


if __name__ == "__main__":
  jax.config.update("jax_platforms", "cpu")  # float64, and nothing here is large
  errors.command(main)
