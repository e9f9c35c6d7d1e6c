"""Figures of results.json: SVG that takes the page's colours, and PNG for other uses."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np

from grpojax.runtime.report.figures import COLOURS, DASHES, INK, STYLE, axes, svg
from grpojax.tools.study import Figure, Study, plan, statistics

MARKERS = "osD^vP"
LETTER = 0.019  # of the axis, the room of a letter below a tick
HALF = 28  # letters that fit in half of a picture's width, beside a line of the legend
PNG = {"text.color": "black", "savefig.facecolor": "white", "savefig.dpi": 160}


class Line(NamedTuple):
  """One curve with its band, in the figure's unit."""

  label: str
  x: np.ndarray
  mean: np.ndarray
  low: np.ndarray
  high: np.ndarray


def draw(study: Study, results: dict, folder: Path) -> list[dict]:
  """Writes a PNG of every figure there is data for; returns title, note, legend, svg and the PNG's name."""
  drawn = []
  asked = [(figure, None) for figure in study.figures]
  asked += [(section.figure, section.lines) for section in study.conclude(results) if section.figure]
  for figure, lines in asked:
    plot = _plotted(figure, study, results, lines)
    if not plot:
      continue
    with matplotlib.rc_context(STYLE):
      page, legend = plot(in_picture=False)
      drawn.append(dict(title=figure.title, note=figure.note, legend=legend, svg=svg(page, figure.title)))
    with matplotlib.rc_context(STYLE | PNG):
      picture, _ = plot(in_picture=True)
      drawn[-1]["png"] = f"{plan.slug(figure.title)}.png"
      picture.savefig(folder / drawn[-1]["png"], metadata={"Software": None})
  return drawn


def _plotted(
  figure: Figure, study: Study, results: dict, lines: Sequence[Line] | None = None
) -> Callable | None:
  """Returns in_picture -> (matplotlib's figure, legend [(colour, dash, text)]); None without data.

  `lines` are those of a section's figure.  `in_picture` puts the legend in the picture, below the axes.
  """
  if figure.over == "rows":
    (key,) = figure.metrics
    rows = [row for row in _shown(figure, results) if row[key] and row[key]["low"] is not None]
    return partial(_dots, figure, rows, key) if rows else None
  if lines is None:
    made = _swept if figure.over == "swept" else _curves
    lines = list(made(figure, study, results))
  return partial(_plot, figure, study, lines) if lines else None


def _dots(figure: Figure, rows: list[dict], key: str, in_picture: bool):
  """Draws differences from top to bottom, as the table has them; the line is no difference."""
  fig, ax = axes("", figure.unit)
  fig.set_figheight(0.8 + 0.2 * len(rows))
  ax.xaxis.set_major_locator(matplotlib.ticker.AutoLocator())
  ax.axvline(0, color=INK, lw=0.8)
  mean, low, high = (100 * np.array([row[key][what] for row in rows]) for what in ("mean", "low", "high"))
  ax.hlines(range(len(rows)), low, high, color=COLOURS["blue"], lw=1.6)
  ax.plot(mean, range(len(rows)), "o", color=COLOURS["blue"], ms=3.5)
  ax.set_yticks(range(len(rows)), [row["label"] for row in rows], fontsize=8)
  ax.invert_yaxis()
  if in_picture:
    ax.set_title(figure.title, loc="left", fontsize=10.5)
  return fig, []


def _plot(figure: Figure, study: Study, lines: list[Line], in_picture: bool):
  """Draws one curve a line."""
  x_label = {"step": "training step", "tokens": "tokens generated in training"}.get(figure.over)
  fig, ax = axes(figure.unit, x_label or figure.x or study.swept)
  if figure.over != "step":
    ax.xaxis.set_major_locator(matplotlib.ticker.AutoLocator())
  legend = []
  styles = zip(cycle(COLOURS), cycle(DASHES), cycle(MARKERS))
  for line, (colour, dash, marker) in zip(lines, styles, strict=False):
    look = dict(color=COLOURS[colour], ls=dash, lw=1.6, marker=marker if len(line.x) < 20 else "", ms=3.5)
    ax.plot(line.x, line.mean, label=line.label, **look)
    ax.fill_between(line.x, line.low, line.high, color=COLOURS[colour], alpha=0.15, lw=0)
    legend.append((colour, dash, line.label))
  if figure.unit == "points":  # differences
    ax.axhline(0, color=INK, lw=0.8)
  if figure.over == "swept":
    _of_swept(ax, sorted({x for line in lines for x in line.x}))
  elif min(np.nanmin(line.mean) for line in lines) >= 0 and figure.unit != "% of questions":
    ax.set_ylim(bottom=0)
  if in_picture:
    ax.set_title(figure.title, loc="left", fontsize=10.5)
    if len(lines) > 1:
      columns = 2 if max(len(line.label) for line in lines) <= HALF else 1
      fig.set_figheight(fig.get_figheight() + 0.2 * -(-len(lines) // columns))
      fig.legend(loc="outside lower left", ncols=columns, frameon=False, fontsize=8)
  return fig, legend


def _of_swept(ax, at: list[float]) -> None:
  """Sets the swept numbers as ticks, on a logarithmic axis where they span a factor of 4."""
  places = np.array(at)
  if at[0] > 0 and at[-1] / at[0] >= 4:
    ax.set_xscale("log")
    places = np.log(places)
  labels = [f"{x:g}" if x >= 0.001 or x == 0 else f"{x:.0e}".replace("e-0", "e-") for x in at]
  ax.set_xticks(at, _apart(places, labels), fontsize=8)
  ax.minorticks_off()


def _apart(places: np.ndarray, labels: list[str]) -> list[str]:
  """Returns the labels, "" for each that would lie on the one before it."""
  shown, end = [], -np.inf
  for place, label in zip((places - places[0]) / max(np.ptp(places), 1e-9), labels, strict=True):
    half = LETTER * len(label) / 2
    shown.append(label if place - half > end else "")
    end = place + half if shown[-1] else end
  return shown


def _curves(figure: Figure, study: Study, results: dict) -> Iterator[Line]:
  """Yields one line a row and metric, against steps or tokens."""
  names = [row["label"] for row in _shown(figure, results)]
  for name in names:
    for metric, word in figure.metrics.items():
      curve = results["curves"][name].get(metric)
      line = curve and _line(figure, name if len(names) > 1 else word, curve)
      if line and np.isfinite(line.mean).any():
        yield line


def _shown(figure: Figure, results: dict) -> list[dict]:
  wanted = set(figure.rows)
  return [row for row in results["rows"] if not wanted or wanted & {row["name"], row["label"]}]


def _line(figure: Figure, label: str, curve: dict) -> Line:
  values = np.array(curve["values"], float) * _scale(figure)
  steps, tokens = np.array(curve["steps"], float), np.array(curve["tokens"], float)
  if figure.over == "step":
    return Line(label, steps, *statistics.estimates(values))
  # Seeds do not spend alike: all are read at the same tokens, as far as the thriftiest goes.
  x = np.linspace(tokens[:, 0].max(), tokens[:, -1].min(), len(steps))
  read = np.stack([np.interp(x, spent, value) for spent, value in zip(tokens, values, strict=True)])
  return Line(label, x, *statistics.estimates(read))


def _swept(figure: Figure, study: Study, results: dict) -> Iterator[Line]:
  """Yields one line a group and metric: final evaluations, or training metrics' means over all steps."""
  shown = [row for row in _shown(figure, results) if row["at"] is not None]
  for group in dict.fromkeys(row["group"] for row in shown):
    rows = [row for row in shown if row["group"] == group]
    for metric, word in figure.metrics.items():
      found = [(row["at"], results["curves"][row["label"]].get(metric)) for row in rows]
      found = sorted((at, _level(metric, curve, study.last)) for at, curve in found if curve)
      if found:
        ends = [statistics.estimate(_scale(figure) * values) for _, values in found]
        label = ", ".join(part for part in (group, word if len(figure.metrics) > 1 else "") if part)
        yield Line(label or word, np.array([at for at, _ in found]), *np.array(ends).T)


def _level(metric: str, curve: dict, last: int) -> tuple[float, ...]:
  """Returns each seed's number of a curve: the last evaluations' mean, of training the mean of all steps."""
  values = np.array(curve["values"], float)
  return values[:, 1:][:, -last:].mean(1) if metric.startswith("eval/") else np.nanmean(values, axis=1)


def _scale(figure: Figure) -> float:
  return 100.0 if figure.unit.startswith("%") else 1.0
