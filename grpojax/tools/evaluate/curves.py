"""Curves over k, the samples that may be drawn of a question's n: pass@k, maj@k, best of k by a reward.

curves.json has of each suite, for k = 1 .. n and with 95 % intervals over questions:

    {"questions": 511, "samples": 32, "no_score": 0,
     "curves": {"pass@k": {"after": {"value": [n], "low": [n], "high": [n]}, "before": ., "change": .}, ...},
     "crossing": {"pass@k": {"k": 12, "low": 7, "high": null, "share": 0.9}, ...}}

`before`, `change` and `crossing` are there where two policies answered the same questions; `forced`, which
forcing.py has, where answers were cut at a budget or made to go on.
"""

import json
from pathlib import Path

import numpy as np
import rich.markup
import rich.table

from grpojax.rollout import estimators, subsets
from grpojax.runtime import report, storage
from grpojax.runtime.report import over_k

RESAMPLES = 10_000


def of_questions(answered: list[dict], best_of: str = "") -> dict[str, np.ndarray]:
  """Returns each curve's value of every question, [P, n], of a suite's items."""
  right = np.array([[sample["right"] is True for sample in item["samples"]] for item in answered], float)
  answers = [[sample["answer"] for sample in item["samples"]] for item in answered]
  n = right.shape[1]
  found = {
    "pass@k": np.stack([estimators.pass_at_k(right.sum(1), n, k) for k in range(1, n + 1)], axis=1),
    "maj@k": np.stack([subsets.majority_of(*of_one) for of_one in zip(answers, right, strict=True)]),
  }
  if best_of:
    score = [[_score(sample) for sample in item["samples"]] for item in answered]
    picked = [subsets.best_of(*of_one) for of_one in zip(score, right, strict=True)]
    found[f"best of k by {best_of}"] = np.stack(picked)
  return found


def _score(sample: dict) -> float:
  """Returns the score; a sample without one is picked only where all are."""
  return -np.inf if sample["score"] is None else sample["score"]


def of_suite(after: list[dict], before: list[dict] | None, best_of: str = "") -> dict:
  """Returns what curves.json has of a suite; `before` are the items of the same questions, if any."""
  values = {"after": of_questions(after, best_of)}
  if before is not None:
    same = [item["id"] for item in before] == [item["id"] for item in after]
    assert same, "both policies answer the same questions, in one order"
    values["before"] = of_questions(before, best_of)
    values["change"] = {name: x - values["before"][name] for name, x in values["after"].items()}
  names, (P, n) = list(values["after"]), values["after"]["pass@k"].shape
  flat = np.concatenate([values[which][name] for which in values for name in names], axis=1)
  means = estimators.resampled(flat, RESAMPLES)  # of all at once: paired by question
  ends = np.quantile(means, [0.025, 0.975], axis=0)
  levels = np.stack([flat.mean(0), *ends]).reshape(3, len(values), len(names), n)
  curves = {
    name: {
      which: dict(zip(("value", "low", "high"), levels[:, i, j].tolist(), strict=True))
      for i, which in enumerate(values)
    }
    for j, name in enumerate(names)
  }
  found = dict(questions=P, samples=n, no_score=_without_score(after, before), curves=curves)
  if before is None:
    return found
  change = means.reshape(RESAMPLES, len(values), len(names), n)[:, 2]
  of = {name: _crossing(levels[0, 2, j], change[:, j]) for j, name in enumerate(names)}
  return found | dict(crossing=of)


def crossing(change: np.ndarray) -> np.ndarray:
  """Returns the least k at which after - before, [..., n], has another sign than at k = 1; inf for none."""
  turned = change * np.sign(change[..., :1]) < 0
  return np.where(turned.any(-1), turned.argmax(-1) + 1.0, np.inf)


def _crossing(mean: np.ndarray, resampled: np.ndarray) -> dict:
  """Returns the k of the mean curves, its 95 % interval, and the share of resamples that have one."""
  found = crossing(resampled)
  low, high = np.quantile(found, [0.025, 0.975], method="inverted_cdf")
  ends = dict(k=crossing(mean), low=low, high=high)
  ends = {name: int(k) if np.isfinite(k) else None for name, k in ends.items()}
  return ends | dict(share=float(np.isfinite(found).mean()))


def _without_score(*policies: list[dict] | None) -> int:
  samples = (s for answered in policies if answered for item in answered for s in item["samples"])
  return sum("score" in sample and sample["score"] is None for sample in samples)


def write(out: Path, found: dict) -> Path:
  """Writes curves.json and curves.html; returns the page."""
  storage.write(out / "curves.json", json.dumps(found, indent=1, allow_nan=False), encoding="utf-8")
  template = report.page(Path(__file__).parent, report.PAGES).get_template("curves.html")
  html = template.render(
    title="Curves over k", over_k=over_k.shown(found), command=found["command"],
    palette=report.figures.COLOURS,
  )  # fmt: skip
  return report.put(out / "curves.html", html)


def tables(found: dict) -> list[tuple[rich.table.Table, list[str]]]:
  """Returns of each suite a table for the terminal, and the sentences about it."""
  made = []
  for suite in over_k.shown(found)["suites"]:
    table = rich.table.Table(title=rich.markup.escape(suite["title"]), title_justify="left")
    for number, name in enumerate(suite["head"]):
      table.add_column(name, justify="right" if number else "left")
    for cells in suite["rows"]:
      table.add_row(*map(rich.markup.escape, cells))
    made.append((table, suite["sentences"]))
  return made
