"""Evaluations of what `recipes` trained, each a process that goes on where it was; and what they measured.

OUT/<part>/before/                       the policy that training starts from
OUT/<part>/after/<row>/seed0/            `grpojax evaluate` leaves items.jsonl and summary.json there
"""

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from grpojax.runtime import metrics, parent_death
from grpojax.tools.study import execute, plan
from grpojax.tools.study.plan import Run

CONFIG = Path(__file__).with_name("suites.py")


class Part(NamedTuple):
  """A way to evaluate: which questions, how many completions of each."""

  name: str
  title: str
  questions: int  # of a suite
  samples: int  # k, completions of a question
  own: bool  # of the suite that a policy was trained on alone


class Evaluation(NamedTuple):
  """One policy's: `run` is None for the one before training."""

  run: Run | None
  out: Path
  command: list[str]


def evaluations(part: Part, runs: list[Run], out: Path, extra: list[str]) -> list[Evaluation]:
  """Returns the evaluation before training and one of each finished run; `extra` are flags of all."""
  return [_one(part, run, out, extra) for run in (None, *filter(plan.is_done, runs))]


def _one(part: Part, run: Run | None, out: Path, extra: list[str]) -> Evaluation:
  folder = out / part.name / "before"
  own = []
  if run:
    folder = out / part.name / "after" / plan.folder(run.row) / f"seed{run.seed}"
    own = [f"--checkpoint={run.workdir}"] + [f"--suite={run.row.group}"] * part.own
  flags = [f"--config={CONFIG}", f"--config.eval.samples={part.samples}", f"--limit={part.questions}"]
  command = [sys.executable, "-m", "grpojax", "evaluate", *flags, *extra, *own, f"--out={folder}"]
  return Evaluation(run, folder, command)


def is_done(one: Evaluation) -> bool:
  """Returns True for a summary that is whole: a process may have been killed while it wrote."""
  try:
    summary(one)
  except (FileNotFoundError, json.JSONDecodeError):
    return False
  return True


def carry_out(todo: list[Evaluation], at_once: int) -> None:
  """Runs evaluations to their ends, so many at once, their words into log.txt; ValueError where one fails."""
  devices = [execute.device(number % at_once, at_once) for number in range(len(todo))]
  with ThreadPoolExecutor(at_once) as pool:
    for number, one in enumerate(pool.map(_run, todo, devices), 1):
      print(f"{number}/{len(todo)} {one.out}", flush=True)


def _run(one: Evaluation, environment: dict[str, str]) -> Evaluation:
  one.out.mkdir(parents=True, exist_ok=True)
  with (one.out / "log.txt").open("ab") as log:
    how = dict(stdout=log, stderr=subprocess.STDOUT, preexec_fn=parent_death.die_with_parent)
    code = subprocess.run(one.command, env=os.environ | environment, **how).returncode
  if code:
    raise ValueError(f"{shlex.join(one.command)} ended with {code}; its words are in {one.out / 'log.txt'}.")
  return one


def summary(one: Evaluation) -> dict[str, dict]:
  """Returns suite -> what `grpojax evaluate` wrote of it."""
  return json.loads((one.out / "summary.json").read_text(encoding="utf-8"))["suites"]


def measured(one: Evaluation) -> dict[str, dict[str, float]]:
  """Returns suite -> metric -> share; `commonest` is the accuracy of always saying the commonest answer."""
  suites = summary(one)
  golds = {name: Counter() for name in suites}
  for item in metrics.read(one.out, "items"):
    if item["suite"] in golds:
      golds[item["suite"]][item["answer"]] += 1
  found = {}
  for name, suite in suites.items():
    (_, most), *_ = golds[name].most_common(1)
    found[name] = {key: value["value"] for key, value in suite["metrics"].items()}
    found[name]["commonest"] = most / golds[name].total()
  return found
