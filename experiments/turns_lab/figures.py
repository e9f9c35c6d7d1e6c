"""Results -> PNG, in the estimator laboratory's colours and markers."""

from pathlib import Path

import numpy as np

from experiments.estimator_lab.figures import STYLES, plt, save
from experiments.turns_lab.points import GRIDS


def draw(out: Path, results: dict) -> None:
  """Writes anchors.png and discount.png into `out`."""
  save(out / "anchors.png", _sweep(results["rows"], "anchor"))
  save(out / "discount.png", _sweep(results["rows"], "γ"))


def _sweep(rows: list[dict], knob: str):
  """Draws bias (above) and variance (below) against a knob: a column per game, a line per credit."""
  rows, values = [row for row in rows if row["table"] == knob], GRIDS[knob]
  games, credits = (list(dict.fromkeys(row[key] for row in rows)) for key in ("game", "credit"))
  figure, axes = plt.subplots(2, len(games), figsize=(4.2 * len(games), 7), sharex=True, sharey="row")
  for (bias, variance), game in zip(axes.T, games, strict=True):
    for credit, (colour, marker) in zip(credits, STYLES, strict=False):
      line = [row for row in rows if (row["game"], row["credit"]) == (game, credit)]
      x, style = np.arange(len(line)), dict(color=colour, marker=marker, label=credit, capsize=2)
      bias.errorbar(x, *_of(line, "bias"), **style)
      ratio, error = _of(line, "log variance ratio")
      variance.errorbar(x, np.exp(ratio), np.exp(ratio) * error, **style)
    bias.set_title(game)
    variance.axhline(1, color="0.5", linewidth=1)
    variance.set_xticks(range(len(values)), [str(value) for value in values], rotation=40, ha="right")
    for axis in (bias, variance):
      axis.grid(alpha=0.3)
  axes[0, 0].set_ylabel("bias / |∇J|")
  axes[1, 0].set_ylabel("variance / RLOO's")
  axes[0, 0].legend(fontsize=8)
  figure.supxlabel(knob)
  return figure


def _of(line: list[dict], key: str) -> tuple[np.ndarray, np.ndarray]:
  return np.array([row[key] for row in line]), np.array([row[f"{key}/error"] for row in line])
