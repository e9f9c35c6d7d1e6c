"""The flags of a study, and its steps: plan, run, collect, show."""

import argparse
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path

import rich.console
from etils import epath

from grpojax.runtime import errors, lock, storage
from grpojax.tools.study import Study, cluster, execute, figures, page, plan, power, results, table
from grpojax.tools.study.plan import Run


def run(program: str, study: Callable[[str], Study], scales: tuple[str, ...]) -> None:
  """Runs the command of a study that has scales; the first is the default."""
  errors.command(_run, f"python -m {program}", study, scales)


def _run(program: str, study: Callable[[str], Study], scales: tuple[str, ...]) -> None:
  p = parser(program)
  p.add_argument("--scale", choices=scales, default=scales[0], help="model, data and budget")
  args, extra = p.parse_known_args()
  made = study(args.scale)
  main(program, made, args, extra, f"runs/{made.name}")


def parser(program: str) -> argparse.ArgumentParser:
  """Returns the flags that every study has; `--config.key=value` goes to all of its runs."""
  p = argparse.ArgumentParser(prog=program, allow_abbrev=False)
  p.add_argument("--rows", default="", help="names or numbers, with commas between; all without")
  p.add_argument("--seeds", type=int, help="how often every row is run, with seeds 0, 1, ...")
  p.add_argument(
    "--out", help="folder of runs and results, or a bucket for a cluster's runs; default runs/<study>-<scale>"
  )
  p.add_argument("--dry_run", action="store_true", help="print the plan and what it costs, and end")
  p.add_argument("--backend", choices=("local", "slurm", "xpk"), default="local", help="who starts the runs")
  p.add_argument(
    "--parallel", type=int, default=0, help="local runs at once; 0: one, or without GPU or TPU one a core"
  )
  p.add_argument(errors.FLAG, action="store_true", help="show the traceback of an error")  # and taken there
  return p


def main(program: str, study: Study, args: argparse.Namespace, extra: list[str], default_out: str) -> None:
  """Plans, runs and shows the study.  Raises ValueError where a flag or a row's config is wrong."""
  console = rich.console.Console()
  out, runs_in = folders(args.out or default_out, default_out, args.backend)
  command = " ".join([program, *sys.argv[1:]])
  foreign = [flag for flag in extra if not flag.startswith("--config.")]
  if foreign:
    raise ValueError(f"{foreign[0]} is no flag of this study; those of all runs are --config.key=value.")
  runs = plan.make(study, runs_in, seeds_of(study, args), plan.named(study, args.rows), extra)
  left = [run for run in runs if not plan.is_done(run)]
  describe(console, study, runs, left, args.parallel)
  if args.dry_run:
    return
  with lock.hold_folder(out, "--out", "a study"):  # another one's runs there would find their workdirs taken
    if args.backend != "local":
      console.print(f"written: {cluster.write(args.backend, study.name, out, left, command)}", soft_wrap=True)
    failed = run_here(runs, args.parallel) if args.backend == "local" else []
    if args.backend == "local" or len(left) < len(runs):
      show(console, study, out, runs, command)
  if failed:
    sys.exit(f"error: {len(failed)} of {len(runs)} runs failed; the same command tries them again.")


def folders(out: str, default_out: str, backend: str) -> tuple[Path, Path | epath.Path]:
  """Returns the folder of the results, and the one of the runs: the same, but for a cluster's in a bucket."""
  if backend == "local" or not storage.in_bucket(out):
    return (storage.local(out, "--out"),) * 2
  return Path(default_out), storage.resolve(out, "--out")


def seeds_of(study: Study, args: argparse.Namespace) -> int:
  return study.seeds if args.seeds is None else args.seeds


def run_here(runs: list[Run], parallel: int) -> list[execute.Outcome]:
  """Runs all runs and returns those that failed."""
  try:
    return [o for o in execute.everything(runs, execute.concurrency(parallel)) if o.code]
  except KeyboardInterrupt:
    print("Stopped, and what ran has saved; the same command goes on from there.")
    sys.exit(os.EX_TEMPFAIL)


def show(console: rich.console.Console, study: Study, out: Path, runs: list[Run], command: str) -> None:
  """Writes results.json, table.md, the figures and report.html, of the runs that are finished."""
  found = results.collect(study, runs, command)
  if not found["rows"]:
    first = ", with the first row of its group, which alone is evaluated before training" * study.before_once
    raise ValueError(f"No run of {study.name} is finished{first}.")
  results.write(out, found)
  (out / "table.md").write_text(table.markdown(study, found), encoding="utf-8")
  drawn = figures.draw(study, found, out)
  written = page.write(out, study, found, drawn, runs[0])
  console.print(table.terminal(study, found))
  for line in table.notes(study, found):
    console.print(line, markup=False)
  console.print(f"report: {written}", soft_wrap=True, markup=False)


def describe(console, study: Study, runs: list[Run], left: list[Run], parallel: int) -> None:
  """Prints the plan: rows with what they change, and an estimate of what is left to do."""
  say = functools.partial(console.print, markup=False, highlight=False, soft_wrap=True)
  rows = runs[: len({run.row.label for run in runs})]
  seeds = table.seeds(len(runs) // len(rows))
  say(f"{study.name}: {len(rows)} rows x {seeds} = {len(runs)} runs, {len(left)} to do")
  for number, run in enumerate(rows, 1):
    c = plan.cost(run.config)
    size = f"at most {c.completions:,} completions, {_big(c.tokens)} tokens, {c.updates:,} updates a run"
    say(f"  {number} {run.row.label} ({run.row.config}): {size}")
    for key, value in run.row.changes.items():
      say(f"      {key}={value}")
  for line in power.describe(study, runs, left):
    say(line)
  time = "nobody has measured how long a run takes"
  if study.minutes:
    at_once = execute.concurrency(parallel)
    minutes = study.minutes * len(left) / at_once
    time = f"about {minutes:.0f} minutes, {at_once} at a time ({study.minutes:g} each on {study.machine})"
  say(f"left: at most {_big(sum(plan.cost(run.config).tokens for run in left))} tokens; {time}")


def _big(n: int) -> str:
  """Formats 1,433,600 as "1.4 M"."""
  return f"{n / 1e9:,.1f} G" if n >= 1e9 else f"{n / 1e6:.1f} M"
