"""python -m experiments.turns_lab [--fast] [--out=DIR]"""

import argparse
import time

import jax
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from experiments.turns_lab import claims, compare, figures, measure, report, store
from experiments.turns_lab.games import GAMES
from experiments.turns_lab.points import all_points, gigpo
from experiments.turns_lab.size import DEFAULT, FAST, PILOT, Size
from grpojax.runtime import errors, storage


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(prog="python -m experiments.turns_lab")
  parser.add_argument("--fast", action="store_true", help="few policies and groups")
  parser.add_argument("--out", default="runs/turns_lab", help="folder of the results")
  flags = parser.parse_args(argv)
  size, start, console = FAST if flags.fast else DEFAULT, time.perf_counter(), Console()
  out = storage.local(flags.out, "--out")
  storage.make_folder(out, "--out")

  foretold = detectable(size)
  text = ", ".join(f"{bias:.3f} in {game}" for game, bias in foretold.items())
  console.print(f"Bias that can be told from zero, in |∇J|, by a pilot of {PILOT} groups a policy: {text}")

  find = store.finder(out / "points.jsonl", size, measure.estimates, measure.Estimate)
  for game, point in tqdm([(game, point) for game in GAMES for point in all_points()], desc="credits"):
    find(point, game)
  found = [claim(find) for claim in claims.ALL]
  results = dict(claims=found, rows=report.rows(find), detectable=foretold, size=size._asdict())
  report.write(out, results)
  figures.draw(out, results)

  table = Table("claim", "source", "verdict", title="Credit for turns: what is said, and what holds here")
  for claim in found:
    table.add_row(claim.text, claim.source, claim.verdict)
  console.print(table)
  console.print(f"{time.perf_counter() - start:.0f} s; tables, numbers and figures are in {out}")


def detectable(size: Size) -> dict[str, float]:
  """Foretells the bias of GiGPO that `size` can tell from zero in each game: error of bias² ∝ 1 / M."""
  pilot = size._replace(groups=PILOT)
  return {
    game: compare.resolution(measure.estimates(gigpo(), game, pilot)) * (PILOT / size.groups) ** 0.5
    for game in GAMES
  }


if __name__ == "__main__":
  jax.config.update("jax_platforms", "cpu")  # float64, and nothing here is large
  errors.command(main)
