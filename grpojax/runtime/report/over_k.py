"""Curves over k of an evaluation (curves.json) as the pages show them: tables, sentences, figures.

tools/evaluate/curves.py says what the file has.
"""

import matplotlib
import numpy as np

from grpojax.runtime.report import over_tokens
from grpojax.runtime.report.figures import COLOURS, INK, STYLE, axes, styles, svg

DASHES = {"after": "solid", "before": "dashed"}


def shown(found: dict) -> dict:
  """Returns `about`, and of each suite its title, table (head, rows), sentences and figures."""
  about = f"{found['checkpoint']}; in brackets 95 % bootstrap intervals over questions."
  if found["before"]:
    about = f"Before: {found['before']}. After: {about} Both answer the same questions, paired by these."
  suites = []
  for number, (name, suite) in enumerate(found["suites"].items()):
    suites.append(_suite(name, suite, number))
    if "forced" in suite:
      suites.append(over_tokens.shown(name, suite["forced"], number))
  return dict(about=about, suites=suites)


def _suite(name: str, suite: dict, number: int) -> dict:
  compared = "crossing" in suite
  which = ("before", "after", "change") if compared else ("after",)
  n = suite["samples"]
  ks = sorted({*(2**i for i in range(n.bit_length())), n})
  rows = [
    [_called(curve, k), *(_cell(levels[one], k, "+.1f" if one == "change" else ".1f") for one in which)]
    for curve, levels in suite["curves"].items()
    for k in ks
  ]
  return dict(
    title=f"{name}: {suite['questions']} questions, {n} samples of each",
    head=["", *map(over_tokens.UNITS.get, which)] if compared else ["", "%"],
    rows=rows,
    sentences=_sentences(suite),
    figures=_figures(suite, number),
  )


def _called(curve: str, k: int) -> str:
  """Formats "pass@k" as "pass@8", and "best of k by rm" as "best of 8 by rm"."""
  return curve.replace("@k", f"@{k}") if "@k" in curve else curve.replace(" k ", f" {k} ", 1)


def _cell(level: dict, k: int, form: str) -> str:
  value, low, high = (100 * level[key][k - 1] for key in ("value", "low", "high"))
  return f"{value:{form}} [{low:{form}}, {high:{form}}]"


def _sentences(suite: dict) -> list[str]:
  """Returns what the curves mean, where they cross, and what is not in them."""
  n = suite["samples"]
  said = ["pass@k is the best of k by the verifier: any of k is right. maj@k is exact; ties are shared."]
  for name, cross in suite.get("crossing", {}).items():
    ahead = suite["curves"][name]["change"]["value"][0]
    first, then = ("after", "before") if ahead > 0 else ("before", "after")
    share = f"{100 * cross['share']:.0f} % of resamples have a crossing"
    if not ahead:
      said.append(f"{name}: before and after are equal at k = 1.")
    elif cross["k"] is None:
      said.append(f"{name}: {first} is ahead at k = 1, and {then} at no k up to {n}; {share}.")
    else:
      ends = ["none" if end is None else str(end) for end in (cross["low"], cross["high"])]
      said.append(
        f"{name}: {first} is ahead at k = 1, {then} from k = {cross['k']} on [{', '.join(ends)}]; {share}."
      )
  if suite["no_score"]:
    said.append(f"{suite['no_score']} samples have no score, and are picked only where no other is.")
  return said


def _figures(suite: dict, number: int) -> list[dict]:
  """Draws the curves, and where two policies are compared their paired difference."""
  with matplotlib.rc_context(STYLE):
    drawn = [_draw(suite, list(DASHES), "Accuracy over k", "% of questions", f"Accuracy over k {number}")]
    if "crossing" in suite:
      title = "After - before, over k"
      drawn.append(_draw(suite, ["change"], title, "points", f"Change over k {number}"))
  return drawn


def _draw(suite: dict, which: list[str], title: str, unit: str, label: str) -> dict:
  """Draws one line a curve and policy with its band, k on a logarithmic axis."""
  fig, ax = axes(unit, "k, samples of a question")
  k, legend = np.arange(1, suite["samples"] + 1), []
  for (name, levels), (colour, _) in zip(suite["curves"].items(), styles(), strict=False):
    for one in filter(levels.__contains__, which):
      value, low, high = (100 * np.array(levels[one][key]) for key in ("value", "low", "high"))
      dash = DASHES.get(one, "solid")
      ax.plot(k, value, color=COLOURS[colour], ls=dash, lw=1.6, marker="o" if len(k) < 40 else "", ms=2.5)
      ax.fill_between(k, low, high, color=COLOURS[colour], alpha=0.15, lw=0)
      legend.append((colour, dash, f"{name}, {one}" if "crossing" in suite else name))
  ax.set_xscale("log", base=2)
  ticks = [2**i for i in range(suite["samples"].bit_length())]
  ax.set_xticks(ticks, [str(tick) for tick in ticks])
  ax.minorticks_off()
  if which == ["change"]:
    ax.axhline(0, color=INK, lw=0.8)
  note = "Bands: 95 % intervals over questions."
  return dict(title=title, unit=unit, note=note, legend=legend, svg=svg(fig, label))
