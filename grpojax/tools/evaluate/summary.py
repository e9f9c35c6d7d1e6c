"""Summary of items: every number with its interval, as a table and as summary.json beside the items."""

import json
import re
from pathlib import Path

import numpy as np
import rich.markup
import rich.table

from grpojax.rollout import estimators
from grpojax.runtime import console


def of_suite(answered: list[dict]) -> dict:
  """Returns {"questions", "samples", "no_verdict", "metrics"} of one suite's items.

  `metrics` is {name: {"value", "low", "high"}}.  `no_verdict` counts samples without a reward, which count as
  wrong.
  """
  samples = [item["samples"] for item in answered]
  column = lambda name: [[sample[name] for sample in group] for group in samples]
  right = np.array([[verdict is True for verdict in group] for group in column("right")])
  length, ended = np.array(column("length")), np.array(column("ended"))
  questions = estimators.per_question(right, column("answer"), length, ended)
  k = right.shape[1]
  estimates = estimators.estimate(questions, k)
  values = np.stack(list(estimates.values()), axis=1)
  ends = zip(values.mean(axis=0), *estimators.bootstrap(values), strict=True)
  return dict(
    questions=len(answered),
    samples=k,
    no_verdict=sum(verdict is None for group in column("right") for verdict in group),
    metrics={
      name: dict(value=float(value), low=float(low), high=float(high))
      for name, (value, low, high) in zip(estimates, ends, strict=True)
    },
  )


def write(out: Path, summary: dict) -> None:
  (out / "summary.json").write_text(json.dumps(summary, indent=2))


def table(title: str, suites: dict[str, dict]) -> rich.table.Table:
  """Returns one column a suite, one row a number with its interval: `41.2 [38.0, 44.5]`."""
  made = rich.table.Table(title=title, title_justify="left")
  made.add_column("")
  for name, suite in suites.items():
    made.add_column(f"{name}\n{suite['questions']} questions", justify="right")
  for cells in rows(suites):
    made.add_row(*map(rich.markup.escape, cells))  # a bare bracket would be rich's markup
  return made


def rows(suites: dict[str, dict]) -> list[list[str]]:
  """Returns the lines of that table: a number's name, and its value in each suite; [] of no suites."""
  first = next(iter(suites.values()), dict(metrics={}))
  found = []
  for name in first["metrics"]:
    if re.match("avg@", name):
      continue  # named beside pass@1, which it equals
    label, scale = _label(name, first["samples"])
    found.append([label, *(_cell(suite["metrics"][name], scale) for suite in suites.values())])
  return found


def _label(name: str, samples: int) -> tuple[str, float]:
  if f"eval/{name}" in console.LABELS:
    return console.LABELS[f"eval/{name}"]
  return (f"pass@1 = avg@{samples}, %" if name == "pass@1" else f"{name}, %"), 100


def _cell(metric: dict[str, float], scale: float) -> str:
  value, low, high = (scale * metric[key] for key in ("value", "low", "high"))
  return f"{value:.1f} [{low:.1f}, {high:.1f}]"
