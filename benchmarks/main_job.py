"""The default job as a newcomer runs it: every variant, several seeds, one table.

    python -m benchmarks.main_job                              # five variants, seeds 0 1 2
    python -m benchmarks.main_job --recipes gspo --seeds 0 --cold

Each run is the README's command in a process of its own, one after another.  `--cold` gives the first
run an empty cache; the others find its cold start there.  Seeds change the rollouts and the order of
prompts, not the cold start.  Writes benchmarks/results/main_job.json and prints Markdown.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.setting import ROOT, keep, setting, where
from grpojax.runtime import metrics


def run(recipe: str, seed: int, cache: Path, workdir: Path) -> dict:
  flags = [f"--config=configs/{recipe}.py", f"--config.seed={seed}", f"--config.cache_dir={cache}"]
  start = time.perf_counter()
  done = subprocess.run(
    [sys.executable, "-m", "grpojax.main", *flags, f"--workdir={workdir}"],
    cwd=ROOT, capture_output=True, text=True, check=True,
  )  # fmt: skip
  records = metrics.read(workdir)
  evals = [r for r in records if r["kind"] == "eval"]
  return {
    "recipe": recipe,
    "seed": seed,
    "seconds": round(time.perf_counter() - start, 1),
    "compile_seconds": sum(map(float, re.findall(r"compiled .* in ([\d.]+) s", done.stdout))),
    "cold_start": any(r["kind"] == "cold_start" for r in records),
    "before": evals[0],
    "after": evals[-1],
  }


def table(runs: list[dict]) -> str:
  """Formats means over seeds; differences are paired with the same cold start."""
  lines = [
    "| variant | seeds | before | after | difference (each seed) | truncated | time, cached |",
    "|---|---|---|---|---|---|---|",
  ]
  for recipe in dict.fromkeys(r["recipe"] for r in runs):
    mine = [r for r in runs if r["recipe"] == recipe]
    points = lambda when, key="eval/pass@1", mine=mine: np.array([100 * r[when][key] for r in mine])
    gains = points("after") - points("before")
    cut = "eval/clipped_ratio"
    cached = [r["seconds"] for r in mine if not r["cold_start"]]
    lines.append(
      f"| {recipe} | {', '.join(str(r['seed']) for r in mine)} | {points('before').mean():.1f} % | "
      f"{points('after').mean():.1f} % | {gains.mean():+.1f} ({', '.join(f'{g:+.1f}' for g in gains)}) | "
      f"{points('before', cut).mean():.1f} → {points('after', cut).mean():.1f} % | "
      + (f"{min(cached):.0f}-{max(cached):.0f} s |" if cached else "- |")
    )
  return "\n".join(lines)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--recipes", nargs="+", default=["grpo", "dr_grpo", "dapo", "rloo", "gspo"])
  parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
  parser.add_argument("--cold", action="store_true")
  args = parser.parse_args()
  runs = []
  with tempfile.TemporaryDirectory() as scratch:
    cache = Path(scratch) / "cache" if args.cold else Path("~/.cache/grpojax").expanduser()
    for seed in args.seeds:
      for recipe in args.recipes:
        runs.append(run(recipe, seed, cache, Path(scratch) / f"{recipe}-{seed}"))
        print(f"{recipe} seed {seed}: {runs[-1]['seconds']} s", file=sys.stderr)
  now = setting("benchmarks.main_job")
  keep("main_job", now | {"runs": runs})
  cold = [r for r in runs if r["cold_start"]]
  print(table(runs))
  for r in cold:
    print(f"\nWith an empty cache: {r['seconds']} s, of which compiling {r['compile_seconds']:.1f} s.")
  print(f"\n{where(now)}")


if __name__ == "__main__":
  main()
