"""Figures of scale.json as SVG: the curves with their fits, and the linear form, whose slope is B."""

import matplotlib
import numpy as np
from matplotlib import ticker

from grpojax.runtime.report.figures import COLOURS, STYLE, axes, styles, svg


def draw(found: dict) -> list[dict]:
  """Returns title, unit, note, legend and svg of each figure."""
  with matplotlib.rc_context(STYLE):
    return [_curves(found), _linear(found)]


def _curves(found: dict) -> dict:
  """Draws accuracies with both fits of every recipe; the band is the prediction's interval."""
  fig, ax = _axes("% of questions", found)
  legend = []
  for row, (colour, _) in zip(found["rows"], styles(), strict=False):
    drawn, look = row["drawn"], dict(color=COLOURS[colour], lw=1.6)
    x = drawn["compute"]
    ax.plot(row["compute"][1:], 100 * np.mean(row["accuracy"], axis=0)[1:], "o", color=COLOURS[colour], ms=3)
    ax.plot(x, 100 * np.array(drawn["whole"]), **look)
    ax.plot(x, 100 * np.array(drawn["half"]), ls="dashed", **look)
    if "half_low" in drawn:
      low, high = (100 * np.array(drawn[name]) for name in ("half_low", "half_high"))
      ax.fill_between(x, low, high, color=COLOURS[colour], alpha=0.15, lw=0)
    ax.axvline(row["half"]["until"], color=COLOURS[colour], lw=0.8, ls="dotted")
    legend += [(colour, "solid", row["label"]), (colour, "dashed", "from its first half")]
  note = "Points: means over seeds. The dotted line ends the first half; the band is 95 % of its prediction."
  title = "Held-out accuracy"
  return dict(title=title, unit="% of questions", note=note, legend=legend, svg=svg(fig, title))


def _linear(found: dict) -> dict:
  """Draws log((R - R0) / (A - R)) against log C, a line of slope B where the sigmoid fits."""
  fig, ax = _axes("log((R - R0) / (A - R))", found)
  legend = []
  for row, (colour, _) in zip(found["rows"], styles(), strict=False):
    fit, linear = row["fit"], row["linear"]
    if fit["flat"]:
      continue
    ends = np.array([row["drawn"]["compute"][0], row["drawn"]["compute"][-1]])
    ax.plot(np.exp(linear["log_compute"]), linear["z"], "o", color=COLOURS[colour], ms=3)
    ax.plot(ends, fit["B"] * np.log(ends / fit["C_mid"]), color=COLOURS[colour], lw=1.6)
    legend.append((colour, "solid", f"{row['label']}: B = {fit['B']:.2f}"))
  title = "Linear form"
  note = "Where the sigmoid holds, points lie on a line of slope B, which is 0 at C_mid."
  return dict(title=title, unit="", note=note, legend=legend, svg=svg(fig, title))


def _axes(unit: str, found: dict):
  """Returns a figure and its axes, with compute on a logarithmic axis."""
  fig, ax = axes(unit, f"{found['unit']} of training")
  ax.set_xscale("log")
  ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
  ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: big(x)))
  ax.minorticks_off()
  return fig, ax


def big(x: float) -> str:
  """Formats 312,400 as "312 k"."""
  for size, word in (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"):
    if x >= size:
      return f"{x / size:.3g}{word}"
  return f"{x:.3g}"
