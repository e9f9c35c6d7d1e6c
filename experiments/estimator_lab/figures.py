"""Results -> PNG.  Okabe-Ito colours, and a marker for each, so that no line depends on its hue."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from experiments.estimator_lab.claim import Claim
from grpojax.runtime.report.figures import COLOURS

STYLES = list(zip(COLOURS.values(), "osD^vPX*", strict=True))
LOG_X = ("group size", "length", "τ", "C")


def draw(out: Path, results: dict) -> None:
  """Writes variants.png, sweeps.png, mismatch.png and clipping.png into `out`."""
  claims = {claim.name: claim for claim in results["claims"]}
  save(out / "variants.png", _variants(results["variants"]))
  save(out / "sweeps.png", _sweeps(results["sweeps"]))
  save(out / "mismatch.png", _mismatch(claims["mismatch_against_exact"]))
  save(out / "clipping.png", _clipping(claims["gspo_clips"]))


def _variants(rows: list[dict]):
  """Draws one line per variant, one mark per scenario: direction, noise and lost signal."""
  names = list(dict.fromkeys(row["variant"] for row in rows))
  scenarios = list(dict.fromkeys(row["scenario"] for row in rows))
  figure, axes = plt.subplots(1, 3, figsize=(13, 0.32 * len(names) + 1.6), sharey=True)
  panels = (("cosine", "cosine with ∇J"), ("noise", "noise"), ("lost", "signal lost to clipping"))
  for axis, (key, title) in zip(axes, panels, strict=True):
    for scenario, (colour, marker) in zip(scenarios, STYLES, strict=False):
      found = {row["variant"]: row[key] for row in rows if row["scenario"] == scenario}
      y = np.arange(len(names))
      axis.plot([found[n] for n in names], y, marker, color=colour, label=scenario, alpha=0.85)
    axis.set(title=title, yticks=np.arange(len(names)), yticklabels=[_short(n) for n in names])
    axis.grid(alpha=0.3)
  axes[0].invert_yaxis()
  axes[1].set_xscale("log")
  figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
  return figure


def _sweeps(rows: list[dict]):
  """Draws a column per sweep; cosine, noise and lost signal below each other."""
  names = list(dict.fromkeys(row["sweep"] for row in rows))
  keys = ("cosine", "noise", "lost")
  figure, axes = plt.subplots(3, len(names), figsize=(3 * len(names), 8), sharex="col")
  for column, sweep in enumerate(names):
    mine = [row for row in rows if row["sweep"] == sweep]
    for variant, (colour, marker) in zip(dict.fromkeys(r["variant"] for r in mine), STYLES, strict=False):
      line = [row for row in mine if row["variant"] == variant]
      for axis, key in zip(axes[:, column], keys, strict=True):
        x, y, error = np.array([(r["x"], r[key], r[f"{key}/error"]) for r in line]).T
        axis.errorbar(x, y, error, marker=marker, color=colour, label=variant, capsize=2)
        axis.grid(alpha=0.3)
    axes[1, column].set_yscale("log")
    axes[0, column].set_title(sweep)
    axes[0, column].legend(fontsize=7)
    if sweep in LOG_X:
      axes[0, column].set_xscale("log", base=2)
  for axis, key in zip(axes[:, 0], keys, strict=True):
    axis.set_ylabel(key)
  return figure


def _mismatch(claim: Claim):
  """Draws bias against variance of each correction, a panel per mismatch."""
  figure, axes = plt.subplots(1, len(claim.numbers), figsize=(4.3 * len(claim.numbers), 4.2))
  for axis, (kind, methods) in zip(axes, claim.numbers.items(), strict=True):
    for (name, found), (colour, marker) in zip(methods.items(), STYLES, strict=False):
      axis.plot(found["bias"], found["variance"], marker, color=colour, label=name, markersize=9)
    axis.set(title=kind, xlabel="bias / |∇J|", ylabel="variance / |∇J|²")
    axis.set_xscale("symlog", linthresh=1e-3)
    axis.grid(alpha=0.3)
  axes[-1].legend(fontsize=8)
  return figure


def _clipping(claim: Claim):
  """Draws the share of clipped tokens against drift: GRPO dashed, GSPO solid, a colour per length."""
  curves = {}
  for key, found in claim.numbers["clipped"].items():
    length, drift = key.split(", drift × ")
    curves.setdefault(length, []).append((float(drift), found["grpo"], found["gspo"]))
  figure, axis = plt.subplots(figsize=(6.5, 4.5))
  for (length, points), (colour, marker) in zip(curves.items(), STYLES, strict=False):
    x, grpo, gspo = np.array(points).T
    axis.plot(x, gspo, color=colour, marker=marker, label=f"GSPO, {length}")
    axis.plot(x, grpo, color=colour, marker=marker, linestyle="--", mfc="none", label=f"GRPO, {length}")
  axis.axhspan(3e-4, 5e-3, color="0.5", alpha=0.15)
  axis.set(xscale="log", yscale="log", xlabel="scale of the drift", ylabel="share of tokens clipped")
  axis.legend(fontsize=7, ncols=2)
  axis.grid(alpha=0.3)
  return figure


def _short(name: str) -> str:
  first, *others = name.split(" = ")
  return first + (f" (+{len(others)})" if others else "")


def save(path: Path, figure) -> None:
  if figure.get_layout_engine() is None:
    figure.set_layout_engine("constrained")
  figure.savefig(path, dpi=130)
  plt.close(figure)
