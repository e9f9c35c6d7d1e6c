"""report.html of a whole chain: accuracy after each stage, curves over k, what each took, samples."""

import itertools
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np

from grpojax.runtime import console, metrics, report
from grpojax.runtime.report import over_k
from grpojax.runtime.report.figures import COLOURS, STYLE, axes, svg
from grpojax.tools.evaluate import curves, items
from grpojax.tools.pipeline import cost, manifest, stage_page
from grpojax.tools.pipeline.stages import BASE, ON_POLICY, Stage

QUESTIONS = 3  # that are shown with an answer of each evaluation
HEAD = ("stage", "kind", "starts from", "pass@1, %", "length", "steps", "tokens", "time")


class Accuracy(NamedTuple):
  """pass@1 on held-out questions, with the ends of its 95 % interval, as shares."""

  label: str
  value: float
  low: float
  high: float

  def text(self) -> str:
    """Returns `41.2 [38.0, 44.5]` in %."""
    return f"{100 * self.value:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


def write(title: str, stages: list[Stage], workdir: Path) -> Path:
  """Writes the report of the stages that have left something; returns its path."""
  begun = [stage for stage in stages if (workdir / stage.name / "metrics.jsonl").exists()]
  records = {stage.name: metrics.read(workdir / stage.name) for stage in begun}
  found = [accuracy(stage, workdir / stage.name, records[stage.name]) for stage in begun]
  first = _before(begun, records)
  points = [*([first] if first else []), *filter(None, found)]
  asked = answered(begun, workdir)
  rows = [_row(*one, records[one[0].name]) for one in zip(begun, found, strict=True)]
  html = (
    report.page(Path(__file__).parent, report.PAGES)
    .get_template("pipeline.html")
    .render(
      title=title,
      head=HEAD,
      rows=rows,
      differences=differences(asked),
      over_k=curves_over_k(asked),
      figures=[_figure(points)] if points else [],
      kept=[_kept(stage, workdir, records[stage.name]) for stage in begun if stage.kind == "sample"],
      questions=_questions(asked),
      groups=[_groups(stage, workdir) for stage in begun if stage.kind in ON_POLICY],
      palette=COLOURS,
    )
  )
  return report.put(workdir / "report.html", html)


def accuracy(stage: Stage, folder: Path, records: list[dict]) -> Accuracy | None:
  """Returns the accuracy of the policy that a stage leaves; None of a stage that measures none."""
  if stage.kind == "evaluate":
    found = manifest.evaluated(stage, folder)
    return found and Accuracy(stage.name, *(found["pass@1"][key] for key in ("value", "low", "high")))
  measured = [record for record in records if "eval/pass@1" in record]
  return _of_record(stage.name, measured[-1]) if measured else None


def _of_record(label: str, record: dict) -> Accuracy:
  value, half = record["eval/pass@1"], record.get("eval/pass@1_ci95", 0.0)  # of one question there is none
  return Accuracy(label, value, value - half, value + half)


def _before(stages: list[Stage], records: dict[str, list[dict]]) -> Accuracy | None:
  """Returns the accuracy of the base, as the first stage that starts from it has measured it."""
  for stage in stages:
    measured = [record for record in records[stage.name] if "eval/pass@1" in record]
    if stage.init == BASE and measured:
      return _of_record(BASE, measured[0])
  return None


def _row(stage: Stage, found: Accuracy | None, records: list[dict]) -> list[str]:
  """Returns a stage's line of the table."""
  steps = max((record["step"] for record in records if record["kind"] != "eval"), default=0)
  tokens, seconds = cost.spent(records)
  lengths = [record["eval/mean_length"] for record in records if "eval/mean_length" in record]
  return [
    stage.name,
    stage.kind,
    ", ".join(filter(None, (stage.init, *stage.samples))) or "-",
    found.text() if found else "-",
    f"{lengths[-1]:.1f}" if lengths else "-",
    f"{steps:,}" if steps else "-",
    f"{tokens:,}" if tokens else "-",
    console.duration(seconds),
  ]


def answered(stages: list[Stage], workdir: Path) -> dict[str, list[dict]]:
  """Returns the items of each `evaluate` stage, by its name."""
  names = [stage.name for stage in stages if stage.kind == "evaluate"]
  return {name: metrics.read(workdir / name, "items") for name in names}


def differences(answered: dict[str, list[dict]]) -> list[str]:
  """Returns sentences on the evaluations: each against the first, paired by question."""
  right = {
    name: {(item["suite"], item["id"]): item["correct"] / item["n"] for item in items}
    for name, items in answered.items()
  }
  names = list(right)
  return [_difference(names[0], right[names[0]], name, right[name]) for name in names[1:]]


def _difference(first: str, before: dict, name: str, after: dict) -> str:
  both = [key for key in before if key in after]
  apart = 100 * np.array([after[key] - before[key] for key in both])
  half = 1.96 * apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else np.nan
  return f"{name} against {first}: pass@1 {apart.mean():+.1f} ± {half:.1f} points, on {len(both)} questions"


def curves_over_k(answered: dict[str, list[dict]]) -> dict | None:
  """Returns what over_k.html shows of the last evaluation against the first; None without two of them.

  Suites of one sample a question have no curve.
  """
  names = list(answered)
  if len(names) < 2:
    return None
  before, after = (items.by_suite(answered[name]) for name in (names[0], names[-1]))
  ids = lambda asked: [(item["id"], item["n"]) for item in asked]
  suites = {
    suite: curves.of_suite(asked, before[suite])
    for suite, asked in after.items()
    if asked[0]["n"] > 1 and ids(asked) == ids(before.get(suite, []))
  }
  return over_k.shown(dict(checkpoint=names[-1], before=names[0], suites=suites)) if suites else None


def _figure(points: list[Accuracy]) -> dict:
  """Draws the accuracies from left to right, each with its interval."""
  title = "Accuracy after each stage"
  with matplotlib.rc_context(STYLE):
    fig, ax = axes("% of held-out questions", x="")
    value, low, high = (100 * np.array([getattr(p, key) for p in points]) for key in ("value", "low", "high"))
    at = np.arange(len(points))
    ax.errorbar(at, value, (value - low, high - value), color=COLOURS["blue"], marker="o", capsize=3, lw=1.6)
    ax.set_xticks(at, [console.visible(p.label) for p in points], rotation=30, ha="right")
    ax.set_ylim(bottom=0)
    drawn = svg(fig, title)
  note = "pass@1 with 95 % intervals over questions; evaluate stages ask all of them, the others the first."
  return dict(title=title, unit="", note=note, legend=[], svg=drawn)


def _kept(stage: Stage, workdir: Path, records: list[dict]) -> dict:
  """Returns what a `sample` stage says of its answers and of its judge, and its first rows."""
  said, rows = stage_page.kept(stage, records), stage_page.rows(workdir / stage.name)
  return dict(name=stage.name, said=said, rows=rows)


def _questions(answered: dict[str, list[dict]]) -> list[dict]:
  """Returns the first questions, each with the first answer of every evaluation."""
  found = []
  for item in itertools.islice(next(iter(answered.values()), ()), QUESTIONS):
    same = {name: one for name, items in answered.items() for one in items if one["id"] == item["id"]}
    answers = [stage_page.answer(name, one["samples"][0]) for name, one in same.items()]
    found.append(dict(question=item["question"], answer=item["answer"], answers=answers))
  return found


def _groups(stage: Stage, workdir: Path) -> dict:
  """Returns the first and the last group that a stage sampled while it learned."""
  groups = metrics.read(workdir / stage.name, "completions")
  return dict(name=stage.name, groups=[groups[0], groups[-1]] if len(groups) > 1 else groups)
