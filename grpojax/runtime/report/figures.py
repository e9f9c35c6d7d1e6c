"""Curves of records, as SVG that takes the page's colours: one drawing for light and dark pages.

A figure is drawn if one of its metrics was measured.  Legends are no part of the drawing: the page
writes them as text, where they cannot cover a curve.
"""

import io
import itertools
import math
import re

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from grpojax.runtime import console, metrics

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
INK = "#010101"  # becomes the page's text colour
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

# title, unit, {metric: word in the legend}, note for the reader.  "%" scales by 100.
LINES = (
  ("Reward", "mean per completion", {"reward": "reward", "accuracy": "accuracy"}, ""),
  (
    "Groups",
    "% of groups",
    {
      "prompts/all_wrong": "all wrong",
      "prompts/all_right": "all right",
      "dynamic_sampling/keep_rate": "kept by dynamic sampling",
    },
    "Of all that were drawn.  Groups that are all wrong or all right teach nothing.",
  ),
  (
    "Completion length",
    "tokens",
    {
      "completions/mean_length": "all",
      "completions/mean_terminated_length": "those that ended",
      "eval/mean_length": "held out",
    },
    "",
  ),
  (
    "Truncated completions",
    "% of completions",
    {"completions/clipped_ratio": "training", "eval/clipped_ratio": "held out"},
    "Cut by the response budget before they ended.",
  ),
  ("Entropy", "nats per token", {"entropy": "policy"}, ""),
  (
    "Clipped tokens",
    "% of tokens",
    {"clip_ratio/low_mean": "below the range", "clip_ratio/high_mean": "above the range"},
    "0 is expected when a rollout feeds one update only: the policy has not moved yet.",
  ),
  ("KL from the reference", "nats per token", {"kl": "KL"}, ""),
  ("KL from the old policy", "nats per token", {"ppo_kl": "KL"}, ""),
  ("Gradient norm", "global L2 norm, before clipping", {"grad_norm": "gradient"}, ""),
  (
    "Sampler against learner",
    "|difference of log-probs|, nats",
    {
      "sampling/sampling_logp_difference/mean": "mean",
      "sampling/sampling_logp_difference/max": "largest",
    },
    "Growth means that the sampler runs another policy than the one being trained.",
  ),
  (
    "Speed",
    "tokens per second",
    {"tokens_per_second/rollout": "rollout", "tokens_per_second/update": "update"},
    "",
  ),
)


COLD_START = (
  "Cold start",
  "nats per token",
  {"loss": "loss"},
  "The cold start counts its own steps.",
)
LOGARITHMIC = ("Sampler against learner",)


def draw(records: list[dict]) -> list[dict]:
  """Draws every figure there is data for: its title, note, legend [(colour, dash, text)] and svg."""
  names = dict.fromkeys(name for record in records for name in record)  # in the order written
  accuracy = _labels(names, r"eval/((?:pass|maj)@\d+)")
  parts = _labels(names, r"rewards/(.+)/mean")
  parts = parts if len(parts) > 1 else {}  # a single part is the reward itself
  reward, *others = LINES
  cold_start = [record for record in records if record["kind"] == "cold_start"]
  records = [metrics.of_drawn(record) for record in records if record["kind"] != "cold_start"]
  with matplotlib.rc_context(STYLE):
    drawn = [
      _lines(records, "Held-out accuracy", "% of questions", accuracy, "Band: 95 % confidence."),
      _lines(records, *reward),
      _lines(records, "Reward by part", "mean per completion", parts, ""),
      *(_lines(records, *spec) for spec in others),
      _phases(records),
      _lines(cold_start, *COLD_START),
    ]
  return [figure for figure in drawn if figure]


def _labels(names, pattern) -> dict[str, str]:
  """Returns {metric: the text of the pattern's group} of the metrics that match."""
  matches = {name: re.fullmatch(pattern, name) for name in names}
  return {name: match[1] for name, match in matches.items() if match}


def points(records: list[dict], name: str) -> tuple[np.ndarray, np.ndarray]:
  """Returns steps [N] and values [N] of a metric; NaN, a gap in the curve, where a value was not finite."""
  pairs = [(r["step"], r[name]) for r in records if name in r]
  steps, values = zip(*pairs, strict=True) if pairs else ((), ())
  return np.array(steps, float), np.array([math.nan if v is None else v for v in values], float)


def _lines(records, title, unit, labels, note):
  """Draws one curve per metric, with a band where its 95 % half width is known; None without data."""
  scale = 100 if unit.startswith("%") else 1
  curves = {name: points(records, name) for name in labels}
  curves = {name: (x, scale * y) for name, (x, y) in curves.items() if np.isfinite(y).any()}
  if not curves:
    return None
  fig, ax = axes(unit)
  legend = []
  styles = zip(itertools.cycle(COLOURS), itertools.cycle(DASHES))
  for (name, (x, y)), (colour, dash) in zip(curves.items(), styles, strict=False):
    # Markers on short curves: a value between two gaps has no line to be seen by.
    ax.plot(x, y, color=COLOURS[colour], ls=dash, lw=1.6, marker="o" if len(x) < 40 else "", ms=3)
    half_width = scale * points(records, f"{name}_ci95")[1]
    if len(half_width) == len(y):
      ax.fill_between(x, y - half_width, y + half_width, color=COLOURS[colour], alpha=0.2, lw=0)
    legend.append((colour, dash, f"{labels[name]} {_short(y[np.isfinite(y)][-1])}"))
  lowest = min(np.nanmin(y) for _, y in curves.values())
  if title in LOGARITHMIC and lowest > 0:
    ax.set_yscale("log")
  elif lowest >= 0:
    ax.set_ylim(bottom=0)
  return dict(title=title, note=note, legend=legend, svg=svg(fig, title))


def _phases(records):
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

  fig, ax = axes("seconds per step")
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
  return dict(title="Time by phase", note=note, legend=legend, svg=svg(fig, "Time by phase"))


def _short(value: float) -> str:
  """Formats three digits, without an exponent below a million: 0.0123, 2431."""
  return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def axes(unit, x="training step"):
  fig = Figure(figsize=(4.2, 2.6), layout="constrained")
  ax = fig.subplots()
  ax.set_xlabel(x)
  ax.set_ylabel(unit)
  ax.xaxis.get_major_locator().set_params(integer=True)
  return fig, ax


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
