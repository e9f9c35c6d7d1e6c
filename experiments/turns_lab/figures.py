"""Results -> PNG, in the estimator laboratory's colours and markers."""

from pathlib import Path

import numpy as np

from experiments.estimator_lab.figures import STYLES, plt, save
from experiments.turns_lab.points import GRIDS

KNOBS = ("γ", "anchor", "ω", "group size")


def draw(out: Path, results: dict) -> None:
  """Writes sweeps.png into `out`: bias and variance against each knob, a line per credit, a panel per game."""
  games = list(dict.fromkeys(row["game"] for row in results["rows"]))
  figure, axes = plt.subplots(2 * len(games), len(KNOBS), figsize=(4 * len(KNOBS), 4.6 * len(games)))
  for column, knob in enumerate(KNOBS):
    for number, game in enumerate(games):
      mine = [row for row in results["rows"] if (row["table"], row["game"]) == (knob, game)]
      bias, variance = axes[2 * number : 2 * number + 2, column]
      for credit, (colour, marker) in zip(dict.fromkeys(row["credit"] for row in mine), STYLES, strict=False):
        line = [row for row in mine if row["credit"] == credit]
        x = [GRIDS[knob].index(row["x"]) for row in line]
        style = dict(color=colour, marker=marker, label=credit, capsize=2)
        bias.errorbar(x, *_of(line, "bias"), **style)
        ratio, error = _of(line, "log variance ratio")
        variance.errorbar(x, np.exp(ratio), np.exp(ratio) * error, **style)
      for axis in (bias, variance):
        axis.set_xticks(range(len(GRIDS[knob])), [str(x) for x in GRIDS[knob]], rotation=30 if knob == "anchor" else 0)
        axis.grid(alpha=0.3)
      bias.set_title(f"{game}: {knob}")
      variance.axhline(1, color="0.5", linewidth=1)
      if column == 0:
        bias.set_ylabel("bias / |∇J|")
        variance.set_ylabel("variance / RLOO's")
    axes[0, column].legend(fontsize=7)
  save(out / "sweeps.png", figure)


def _of(line: list[dict], key: str) -> tuple[np.ndarray, np.ndarray]:
  return np.array([row[key] for row in line]), np.array([row[f"{key}/error"] for row in line])
