"""Accuracy against tokens under budget forcing (curves.json, "forced") as the pages show it.

tools/evaluate/forcing.py says what is forced.
"""

import matplotlib
import numpy as np

from grpojax.runtime.report.figures import COLOURS, STYLE, axes, styles, svg

UNITS = {"before": "before, %", "after": "after, %", "change": "change, points"}
SENTENCE = (
  "Cut: who still thinks after so many tokens reads config.interruption.text, and answers. Wait: the end of "
  "thinking is replaced, and the policy goes on. Answers that a level does not concern are the free ones; "
  "injected tokens count as tokens."
)


def shown(name: str, levels: list[dict], number: int) -> dict:
  """Returns title, table (head, rows), sentences and figures of a suite's levels."""
  which = [one for one in UNITS if one in levels[0]]
  several = len(which) > 1
  head = [""]
  for one in which:
    head += [UNITS[one] if several else "%"]
    head += [f"tokens, {one}" if several else "tokens"] if one != "change" else []
  rows = [[level["name"], *(cell for one in which for cell in _cells(level, one))] for level in levels]
  return dict(
    title=f"{name}: accuracy against tokens", head=head, rows=rows, sentences=[SENTENCE],
    figures=[_draw(levels, [one for one in which if one != "change"], number)],
  )  # fmt: skip


def _cells(level: dict, which: str) -> list[str]:
  """Formats "41.2 [38.0, 44.5]" and "63.1, 4.0 of them injected" of one policy at a level."""
  form = "+.1f" if which == "change" else ".1f"
  value, low, high = (100 * level[which]["accuracy"][key] for key in ("value", "low", "high"))
  cells = [f"{value:{form}} [{low:{form}}, {high:{form}}]"]
  if which == "change":
    return cells
  injected = level[which]["injected"]["value"]
  forced = f", {injected:.1f} injected" if injected else ""
  return [*cells, f"{level[which]['tokens']['value']:.1f}{forced}"]


def _draw(levels: list[dict], which: list[str], number: int) -> dict:
  """Draws a point a level, with its intervals in tokens and in accuracy; budgets and waits are joined."""
  with matplotlib.rc_context(STYLE):
    fig, ax = axes("% of questions", "tokens of an answer, mean")
    legend = []
    for one, (colour, dash) in zip(which, styles(), strict=False):
      x, y = _points(levels, one, "tokens"), 100 * _points(levels, one, "accuracy")
      order = np.argsort(x[:, 0])
      ax.plot(x[order, 0], y[order, 0], color=COLOURS[colour], ls=dash, lw=1.2)
      for i, level in enumerate(levels):
        mark = "v" if level["name"].startswith("cut") else "^" if "wait" in level["name"] else "o"
        ends = [np.abs(z[i, 1:, None] - z[i, 0]) for z in (x, y)]
        ax.errorbar(
          x[i, 0], y[i, 0], xerr=ends[0], yerr=ends[1], color=COLOURS[colour], marker=mark, ms=5, lw=0.9
        )
      legend.append((colour, dash, one))
    note = "Triangles down: cut; up: waited; circle: as it ends. Bars: 95 % intervals over questions."
    label = f"Accuracy against tokens {number}"
    return dict(
      title="Accuracy against tokens", unit="% of questions", note=note, legend=legend, svg=svg(fig, label)
    )


def _points(levels: list[dict], which: str, column: str) -> np.ndarray:
  """Returns the column's value, low and high end of every level, [levels, 3]."""
  return np.array([[level[which][column][key] for key in ("value", "low", "high")] for level in levels])
