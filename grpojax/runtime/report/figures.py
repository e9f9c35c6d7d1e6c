"""Curves of records, as SVG that takes the page's colours: one drawing for light and dark pages.

A figure is drawn if one of its metrics was measured.  Legends are no part of the drawing: the page
writes them as text, where they cannot cover a curve.
"""

import io
import itertools
import math
import re
from collections.abc import Iterator

import matplotlib
import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grpojax.runtime import console, metrics
from grpojax.runtime.report import specs
from grpojax.runtime.report.specs import Chart

# Okabe-Ito, which colour-blind readers can tell apart.  The page maps the names to colours.
COLOURS = {
  "blue": "#0072b2",
  "vermillion": "#d55e00",
  "green": "#009e73",
  "purple": "#cc79a7",
  "orange": "#e69f00",
  "sky": "#56b4e9",
  "yellow": "#f0e442",
  "grey": "#999999",
}
DASHES = ("solid", "dashed", "dotted")
TICKS = dict(nbins=5, steps=(1, 2, 2.5, 5, 10))  # along an axis at most so many steps, of such lengths
INK = "#010101"  # becomes the page's text colour
FRAME = (0.18, 0.19, 0.79, 0.73)  # left, bottom, width, height of axes: a layout that is computed draws twice
STYLE = {
  "svg.fonttype": "none",  # text stays text, in the reader's font
  "font.size": 9.5,
  "text.color": INK,
  "xtick.color": INK,
  "ytick.color": INK,
  "axes.labelcolor": INK,
  "axes.edgecolor": INK,
  "axes.spines.top": False,
  "axes.spines.right": False,
  "axes.grid": True,
  "axes.axisbelow": True,
  "axes.formatter.limits": (-3, 5),
  "grid.color": INK,
  "grid.alpha": 0.15,
}

def draw(records: list[dict]) -> list[dict]:
  """Draws every figure there is data for: its title, note, legend [(colour, dash, text)] and svg."""
  with matplotlib.rc_context(STYLE):
    ax = axes("")[1]  # of all figures in turn: new ones take two fifths of the time
    drawn = [_draw(ax, chart, chart.own(records)) for chart in specs.charts(records)]
  return [figure for figure in drawn if figure]


def _draw(ax: Axes, chart: Chart, records: list[dict]) -> dict | None:
  """Draws one figure, on axes that may show another; None where its curves have not two numbers to show."""
  for artist in (*ax.lines, *ax.collections, *ax.patches):
    artist.remove()
  ax.set_yscale("linear")
  ax.relim()
  ax.autoscale()
  label(ax, chart.unit)
  return _phases(ax, records) if chart.title == specs.PHASES else _lines(ax, records, chart)


def points(records: list[dict], name: str) -> tuple[np.ndarray, np.ndarray]:
  """Returns steps [N] and values [N] of a metric; NaN, a gap in the curve, where a value was not finite."""
  pairs = [(r["step"], r[name]) for r in records if name in r]
  steps, values = zip(*pairs, strict=True) if pairs else ((), ())
  return np.array(steps, float), np.array([math.nan if v is None else v for v in values], float)


def _lines(ax: Axes, records: list[dict], chart: Chart) -> dict:
  """Draws one curve per metric, with a band where its 95 % half width is known."""
  curves = {name: points(records, name) for name in chart.curves}
  curves = {name: (x, chart.scale * y) for name, (x, y) in curves.items()}
  legend = []
  for name, (colour, dash) in zip(curves, styles(), strict=False):
    x, y = curves[name]
    # Markers on short curves: a value between two gaps has no line to be seen by.
    ax.plot(x, y, color=COLOURS[colour], ls=dash, lw=1.6, marker="o" if len(x) < 40 else "", ms=3)
    half_width = chart.scale * points(records, f"{name}_ci95")[1]
    if len(half_width) == len(y):
      ax.fill_between(x, y - half_width, y + half_width, color=COLOURS[colour], alpha=0.2, lw=0)
    legend.append((colour, dash, f"{chart.curves[name]} {_short(y[np.isfinite(y)][-1])}"))
  for low, high in chart.bands:
    if low in curves and high in curves:
      (x, bottom), (_, top) = curves[low], curves[high]
      ax.fill_between(x, bottom, top, color=COLOURS["blue"], alpha=0.15, lw=0)
  lowest = min(np.nanmin(y) for _, y in curves.values())
  if chart.log and lowest > 0:
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(ticker.LogFormatter())  # 1e-07: powers would take the place of the unit
    ax.yaxis.set_minor_formatter(ticker.LogFormatter())
  elif lowest >= 0:
    ax.set_ylim(bottom=0)
  drawn = svg(ax.figure, chart.title)
  return dict(title=chart.title, unit=chart.unit, note=chart.note, legend=legend, svg=drawn)


def styles() -> Iterator[tuple[str, str]]:
  """Yields (colour, dash) of a chart's curves, in order."""
  return zip(itertools.cycle(COLOURS), itertools.cycle(DASHES))


def _phases(ax: Axes, records: list[dict]) -> dict | None:
  """Draws seconds per step, stacked by phase; at most 100 bars, each the mean of its steps."""
  totals = metrics.phase_seconds(records)
  steps, _ = points(records, "time/step")
  if not totals or not len(steps):
    return None
  width = math.ceil((steps.max() - steps.min() + 1) / 100)
  edges = np.append(np.arange(steps.min(), steps.max() + 1, width), steps.max() + 1) - 0.5

  def mean_seconds(phase):
    x, y = points(records, f"time/{phase}")
    return np.histogram(x, edges, weights=np.nan_to_num(y))[0] / np.diff(edges)

  bottom = np.zeros(len(edges) - 1)
  legend = []
  for (phase, total), colour in zip(totals.items(), itertools.cycle(COLOURS), strict=False):
    top = bottom + mean_seconds(phase)
    ax.stairs(top, edges, baseline=bottom, fill=True, color=COLOURS[colour], lw=0)
    bottom = top
    legend.append((colour, "solid", f"{phase} {console.duration(total)}"))
  ceiling = 4 * np.median(bottom)  # compiling in the first step must not flatten all others
  ax.set_ylim(0, min(ceiling, 1.05 * bottom.max()))
  note = f"Each bar is the mean of {width} steps. " if width > 1 else ""
  if tall := (bottom > ceiling).sum():
    note += f"Beyond the top: {tall} of {len(bottom)} bars, up to {console.duration(bottom.max())}."
  title = specs.PHASES
  return dict(title=title, unit="seconds per step", note=note, legend=legend, svg=svg(ax.figure, title))


def _short(value: float) -> str:
  """Formats three digits, without an exponent below a million: 0.0123, 2431."""
  return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def axes(unit, x="training step"):
  fig = Figure(figsize=(4.2, 2.6))
  ax = fig.add_axes(FRAME)
  label(ax, unit, x)
  return fig, ax


def label(ax: Axes, unit: str, x: str = "training step") -> None:
  """Labels the axes, whose ticks are round numbers."""
  ax.set_xlabel(x)
  ax.set_ylabel(unit)
  ax.xaxis.set_major_locator(ticker.MaxNLocator(**TICKS, integer=True))
  ax.yaxis.set_major_locator(ticker.MaxNLocator(**TICKS))


def svg(fig, title) -> str:
  """Returns inline SVG that scales with the page and takes its colours from it."""
  buffer = io.StringIO()
  with matplotlib.rc_context({"svg.hashsalt": title}):  # ids: unique in the page, and reproducible
    fig.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
  svg = buffer.getvalue()
  svg = svg[svg.index("<svg") :]
  svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
  svg = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', f' role="img" aria-label="{title}"', svg)
  svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
  for name, colour in COLOURS.items():
    svg = svg.replace(colour, f"var(--{name})")
  return svg.replace(INK, "currentColor")
