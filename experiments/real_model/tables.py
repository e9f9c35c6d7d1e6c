"""Evaluations of all policies -> a JSON file and a table of each part; the same runs give the same bytes."""

import json
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from experiments.real_model import tasks
from experiments.real_model.evaluation import Evaluation, Part, measured, summary
from grpojax.runtime import storage
from grpojax.runtime.report.figures import COLOURS, STYLE
from grpojax.tools.study import statistics, table
from grpojax.tools.study.figures import PNG

BESIDE = ("answered", "clipped_ratio", "commonest")  # what accuracy is to be read beside


def collect(part: Part, done: list[Evaluation], missing: list[str]) -> dict:
  """Returns {"before": suite -> numbers, "rows": one a task and recipe, with every number of every seed}."""
  (first,) = (one for one in done if one.run is None)
  asked, of = measured(first), {}
  before = {name: asked[name] for name in tasks.TASKS if name in asked}
  for one in done:
    if one.run:
      of.setdefault(one.run.row.label, []).append(one)
  size = next(iter(summary(first).values()))
  return dict(
    part=part.name, questions=size["questions"], samples=size["samples"], missing=missing, before=before,
    rows=[_row(seeds, before) for seeds in of.values()],
  )  # fmt: skip


def _row(evaluated: list[Evaluation], before: dict) -> dict:
  """Returns a policy's numbers by suite and metric: of every seed, their mean, and the change from before."""
  row, seeds = evaluated[0].run.row, {one.run.seed: measured(one) for one in evaluated}
  after, change = {}, {}
  asked = next(iter(seeds.values()))
  for suite in filter(asked.__contains__, before):
    numbers = asked[suite]
    values = {name: [of[suite][name] for of in seeds.values()] for name in numbers}
    after[suite] = {name: _several(of) for name, of in values.items()}
    change[suite] = {name: _several([x - before[suite][name] for x in of]) for name, of in values.items()}
  return dict(trained_on=row.group, recipe=row.name, seeds=list(seeds), after=after, change=change)


def _several(values: list[float]) -> dict:
  mean, low, high = (float(x) if np.isfinite(x) else None for x in statistics.estimate(values))
  return dict(values=values, mean=mean, low=low, high=high)


def write(out: Path, part: Part, found: dict) -> None:
  """Writes results.json, table.md and, where there are several k, a figure of pass@k."""
  text = json.dumps(found, indent=1, allow_nan=False) + "\n"
  storage.write(out / part.name / "results.json", text, encoding="utf-8")
  storage.write(out / part.name / "table.md", markdown(part, found), encoding="utf-8")
  if part.own:
    draw(out / part.name / "pass_at_k.png", found)


def markdown(part: Part, found: dict) -> str:
  """Formats the changes of accuracy, suite by suite, and beside them what accuracy is to be read with."""
  shown = _powers(found) if part.own else ["pass@1"]
  names = [*shown, *BESIDE[:2]]
  lines = [f"# {part.title}", "", *_before(found, [*shown, *BESIDE]), ""]
  head = ["trained on", "recipe", "asked", *(f"{name}, after" for name in names), "pass@1, change in points"]
  lines += [_line(*head), _line(*["---"] * len(head))]
  for row in found["rows"]:
    for suite, numbers in row["after"].items():
      cells = [row["trained_on"], row["recipe"], suite, *(table.level(numbers[name]) for name in names)]
      lines.append(_line(*cells, table.change(row["change"][suite]["pass@1"])))
  seeds = max((len(row["seeds"]) for row in found["rows"]), default=0)
  lines += [
    "",
    f"In % of {found['questions']} questions with {found['samples']} completions each; means over "
    f"{table.seeds(seeds)} with 95 % intervals over seeds, which say nothing of other questions. `answered`: "
    "completions that state an answer, right or wrong; `clipped_ratio`: cut by the budget; `commonest`: the "
    "accuracy of always saying the commonest answer.",
  ]
  if found["missing"]:
    lines += ["", f"Missing: {'; '.join(found['missing'])}."]
  return "\n".join(lines) + "\n"


def _before(found: dict, names: list[str]) -> list[str]:
  lines = [_line("before training", *names), _line(*["---"] * (len(names) + 1))]
  for suite, numbers in found["before"].items():
    lines.append(_line(suite, *(f"{100 * numbers[name]:.1f}" for name in names)))
  return lines


def _line(*cells: str) -> str:
  return f"| {' | '.join(cells)} |"


def _powers(found: dict) -> list[str]:
  """Returns pass@1, pass@2, pass@4, ... as they were measured."""
  first = next(iter(found["before"].values()))
  return [name for name in first if name.startswith("pass@")]


def draw(path: Path, found: dict) -> None:
  """Draws pass@k against k, a picture a task: before training, and each recipe's mean over seeds."""
  names, asked = _powers(found), list(found["before"])
  ks = [int(name.removeprefix("pass@")) for name in names]
  with matplotlib.rc_context(STYLE | PNG):
    fig = Figure(figsize=(2.6 * len(asked), 2.8), layout="constrained")
    for ax, task in zip(fig.subplots(1, len(asked), sharey=True, squeeze=False)[0], asked, strict=True):
      ax.plot(ks, [100 * found["before"][task][name] for name in names], "k--", lw=1.2, label="before")
      of_task = [row for row in found["rows"] if row["trained_on"] == task]
      for row, colour in zip(of_task, COLOURS.values(), strict=False):
        means = [100 * row["after"][task][name]["mean"] for name in names]
        ax.plot(ks, means, color=colour, label=row["recipe"])
      ax.set_xscale("log", base=2)
      ax.set_xticks(ks, [f"{k}" for k in ks], fontsize=8)
      ax.set_title(task, loc="left", fontsize=10)
      ax.set_xlabel("k")
    fig.axes[0].set_ylabel("pass@k, % of questions")
    max(fig.axes, key=lambda ax: len(ax.lines)).legend(frameon=False, fontsize=7)
    fig.savefig(path, metadata={"Software": None})
