"""python -m experiments.mismatch_lab [--fast] [--out=DIR]"""

import argparse
import time

import jax
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from experiments.mismatch_lab import claims, corrections, measure, report
from experiments.mismatch_lab.causes import CAUSES
from experiments.mismatch_lab.size import DEFAULT, FAST
from experiments.turns_lab import store
from grpojax.runtime import errors, processes, storage
from grpojax.tools.study import machine


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(prog="python -m experiments.mismatch_lab")
  parser.add_argument("--fast", action="store_true", help="two policies")
  parser.add_argument("--out", default="runs/mismatch_lab", help="folder of the results")
  flags = parser.parse_args(argv)
  size, start, console = FAST if flags.fast else DEFAULT, time.perf_counter(), Console()
  out = storage.local(flags.out, "--out")
  storage.make_folder(out, "--out")

  find = store.finder(out / "points.jsonl", size, measure.estimates, measure.Estimate)
  wanted = [(cause, point) for cause in CAUSES for point in corrections.of(cause).values()]
  for cause, point in tqdm(wanted, desc="corrections"):
    find(point, cause)
  ran = machine.here() | dict(commit=processes.commit(), device=jax.devices()[0].platform)
  ran["command"] = f"python -m experiments.mismatch_lab{' --fast' if flags.fast else ''}"
  found = [claim(find) for claim in claims.ALL]
  results = dict(run=ran, size=size._asdict(), claims=found, gaps=report.gaps(find), rows=report.rows(find))
  report.write(out, results)

  table = Table("claim", "source", "verdict", title="Sampler and learner: what is said, and what holds here")
  for claim in found:
    table.add_row(claim.text, claim.source, claim.verdict)
  console.print(table)
  console.print(f"{time.perf_counter() - start:.0f} s; tables, numbers and a figure are in {out}")


if __name__ == "__main__":
  jax.config.update("jax_platforms", "cpu")  # float64, and nothing here is large
  errors.command(main)
