"""python -m experiments.real_model [--only=recipes,settings,transfer,pass_at_k] [flags of every study]"""

import argparse
import sys
from pathlib import Path

from experiments.real_model import evaluation, studies, tables, tasks
from experiments.real_model.evaluation import Part
from grpojax.runtime import errors, storage
from grpojax.tools.study import command, execute, plan

PROGRAM = "python -m experiments.real_model"
EVALUATIONS = {
  "transfer": Part("transfer", "Trained on one task, asked all five", questions=128, samples=8, own=False),
  "pass_at_k": Part("pass_at_k", "pass@k before and after", questions=64, samples=64, own=True),
}
PARTS = (*studies.STUDIES, *EVALUATIONS)


def main() -> None:
  p = command.parser(PROGRAM)
  p.add_argument("--only", default=",".join(PARTS), help=f"parts, with commas between: {', '.join(PARTS)}")
  p.set_defaults(parallel=1)  # the model's products keep both cores busy
  args, extra = p.parse_known_args()
  chosen = [name.strip() for name in args.only.split(",")]
  if unknown := [name for name in chosen if name not in PARTS]:
    raise ValueError(f"--only has '{unknown[0]}', and the parts are {', '.join(PARTS)}.")
  out = storage.local(args.out or "runs/real_model", "--out")
  for name in filter(chosen.__contains__, PARTS):
    if name in studies.STUDIES:
      args.out = out / name
      command.main(PROGRAM, studies.STUDIES[name](), args, extra, "")
    else:
      evaluate(EVALUATIONS[name], args, extra, out)


def evaluate(part: Part, args: argparse.Namespace, extra: list[str], out: Path) -> None:
  """Evaluates the finished runs of `recipes` that the flags name; what is done already is only read."""
  study = studies.recipes()
  try:
    only = plan.named(study, args.rows)
    runs = plan.make(study, out / "recipes", command.seeds_of(study, args), only, extra)
    todo = evaluation.evaluations(part, runs, out, extra)
    left = [one for one in todo if not evaluation.is_done(one)]
    suites = sum(len(tasks.TASKS) if one.run is None or not part.own else 1 for one in left)
    size = f"{len(left)} evaluations to do, {suites * part.questions * part.samples:,} completions at most"
    print(f"{part.name}: {len(todo) - 1} of {len(runs)} runs are finished; {size}")
    if args.dry_run:
      return
    evaluation.carry_out(left, execute.concurrency(args.parallel))
    missing = [f"{run.row.label}, seed {run.seed}" for run in runs if not plan.is_done(run)]
    tables.write(out, part, tables.collect(part, todo, missing))
  except KeyboardInterrupt:
    sys.exit("Stopped; the same command goes on from there.")
  print(f"table: {out / part.name / 'table.md'}")


if __name__ == "__main__":
  errors.command(main)
