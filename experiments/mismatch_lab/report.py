"""Results -> results.json, Markdown tables and a figure."""

import json
import math
from pathlib import Path

import numpy as np

from experiments.estimator_lab.figures import STYLES, plt, save
from experiments.estimator_lab.report import claims_table, markdown, plain
from experiments.mismatch_lab import compare, corrections
from experiments.mismatch_lab.causes import CAUSES
from experiments.mismatch_lab.corrections import NONE
from experiments.mismatch_lab.measure import BUDGET
from experiments.turns_lab.store import Find

RATIOS = ("bias", "variance", f"mse at {BUDGET}")


def gaps(find: Find) -> list[dict]:
  """Returns a row per cause: how far the sampler is from the learner."""
  return [dict(cause=cause) | compare.gaps(find(NONE, cause)) for cause in CAUSES]


def rows(find: Find) -> list[dict]:
  """Returns a row per cause and correction."""
  return [
    dict(cause=cause, correction=name) | compare.summary(find(correction, cause), find(NONE, cause))
    for cause in CAUSES
    for name, correction in corrections.of(cause).items()
  ]


def write(out: Path, results: dict) -> None:
  """Writes results.json, tables.md and corrections.png into `out`."""
  text = json.dumps(plain(results), indent=1, ensure_ascii=False, allow_nan=False)
  (out / "results.json").write_text(text + "\n")
  parts = ["# Claims\n", claims_table(results["claims"]), "\n# Causes\n", gaps_table(results["gaps"])]
  of_rows = {"Verdicts": verdicts_table, "Corrections": rows_table}
  parts += [f"\n# {title}\n\n{table(results['rows'])}" for title, table in of_rows.items()]
  (out / "tables.md").write_text("\n".join(parts) + "\n")
  save(out / "corrections.png", _figure(results["rows"]))


def gaps_table(found: list[dict]) -> str:
  """Returns the gap of each cause, with standard errors over policies."""
  keys = dict(gap="mean \\|Δ log p\\|", k1="k1", k3="k3", ess="ESS, %", flips="flips, %", bias="bias")
  scale = lambda key: 100 if key in ("ess", "flips") else 1
  cell = lambda row, key: _with_error(row[key] * scale(key), row[f"{key}/error"] * scale(key))
  header = "| cause | " + " | ".join(keys.values()) + " |"
  lines = markdown(("cause", *keys), [(row["cause"], *(cell(row, key) for key in keys)) for row in found])
  return "\n".join([header, *lines.splitlines()[1:]])


def verdicts_table(found: list[dict]) -> str:
  """Returns a line per correction and a column per cause: what it does to the bias."""
  words = {(row["correction"], row["cause"]): row["verdict"] for row in found}
  names = [name for name in dict.fromkeys(row["correction"] for row in found) if name != "none"]
  causes = [cause for cause in CAUSES if cause != "none"]
  table = [(name, *(words.get((name, cause), "") for cause in causes)) for name in names]
  return markdown(("correction", *causes), table)


def rows_table(found: list[dict]) -> str:
  """Returns bias, and ratios to the cause without a correction; ± is one standard error over policies."""
  header = ("cause", "correction", "scale", "bias", *(f"{key} ratio" for key in RATIOS), "verdict")
  lines = []
  for row in found:
    numbers = (_with_error(row[key], row[f"{key}/error"]) for key in ("scale", "bias"))
    ratios = (_ratio(row[f"log {key} ratio"], row[f"log {key} ratio/error"]) for key in RATIOS)
    word = "" if row["correction"] == "none" else row["verdict"]
    lines.append((row["cause"], row["correction"], *numbers, *ratios, word))
  return markdown(header, lines)


def _figure(found: list[dict]):
  """Draws what is left of the bias (left) and the variance (right) by cause, a mark per correction."""
  causes = [cause for cause in CAUSES if cause != "none"]
  names = [name for name in dict.fromkeys(row["correction"] for row in found) if name != "none"]
  figure, axes = plt.subplots(1, 2, figsize=(13, 0.55 * len(causes) + 1.6), sharey=True)
  for axis, key in zip(axes, RATIOS, strict=False):
    for i, name in enumerate(names):
      colour, marker = STYLES[i % len(STYLES)]
      mine = {row["cause"]: row for row in found if row["correction"] == name}
      y = [causes.index(cause) + 0.05 * (i - len(names) / 2) for cause in causes if cause in mine]
      x = np.array([mine[cause][f"log {key} ratio"] for cause in causes if cause in mine], float)
      face = colour if i < len(STYLES) else "none"
      axis.plot(np.exp(x), y, marker, color=colour, markerfacecolor=face, label=name, alpha=0.85)
    axis.axvline(1, color="0.5", linewidth=1)
    axis.set(xscale="log", title=f"{key} / without a correction", yticks=range(len(causes)))
    axis.set_yticklabels(causes)
    axis.grid(alpha=0.3)
  axes[1].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
  return figure


def _with_error(x: float, error: float) -> str:
  return f"{x:.3g} ± {error:.1g}" if math.isfinite(x) else "–"


def _ratio(log: float, error: float) -> str:
  """Returns a geometric mean, and its error to first order."""
  return _with_error(math.exp(log), math.exp(log) * error) if math.isfinite(log) else "–"
