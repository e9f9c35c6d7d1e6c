"""The table of scale.json, what it says in words, and scale.html."""

from pathlib import Path

from grpojax.runtime import report
from grpojax.tools.scale import figures
from grpojax.tools.scale.figures import big

HEAD = (
  "", "seeds", "R0, before, %", "A, asymptote, %", "B, exponent", "C_mid", "error of the fit, points",
  "end, predicted, %", "end, measured, %", "end, inside?",
)  # fmt: skip


def body(found: dict) -> list[list[str]]:
  """Returns one list of cells a recipe, best asymptote first."""
  return [_cells(row) for row in found["rows"]]


def _cells(row: dict) -> list[str]:
  fit, end = row["fit"], row["end"]
  level = lambda name, write: _level(fit[name], fit.get(f"{name}_interval"), write)
  return [
    row["label"],
    str(len(row["seeds"])),
    _share(fit["R0"]),
    level("A", _share),
    "no gain" if fit["flat"] else level("B", "{:.2f}".format),
    "no gain" if fit["flat"] else level("C_mid", big),
    f"{100 * fit['rms']:.2f}",
    _level(end["predicted"], end.get("interval"), _share),
    _share(end["measured"]),
    {True: "yes", False: "no", None: "no interval"}[end.get("inside")],
  ]


def _share(x: float) -> str:
  """Formats a share in %."""
  return f"{100 * x:.1f}"


def _level(value: float, ends: list[float] | None, write) -> str:
  """Formats "71.2 [70.1, 72.4]", or the value alone where there is no interval."""
  return write(value) + (f" [{write(ends[0])}, {write(ends[1])}]" if ends else "")


def verdicts(found: dict) -> list[str]:
  """Returns a sentence on each recipe's prediction, and on what its fit cannot know."""
  return [_verdict(row, found["unit"]) for row in found["rows"]]


def _verdict(row: dict, unit: str) -> str:
  half, end = row["half"], row["end"]
  off = 100 * (end["measured"] - end["predicted"])
  verdict = {True: ", inside the interval", False: ", outside the interval", None: "; one seed: no interval"}
  said = (
    f"{row['label']}: fitted to the {half['points']} evaluations up to {big(half['until'])} {unit}, it"
    f" predicts {_level(end['predicted'], end.get('interval'), _share)} % at {big(end['compute'])};"
    f" measured were {_share(end['measured'])} % ({off:+.1f} points)"
    f"{verdict[end.get('inside')]}."
  )
  for part, words in (half, "the first half"), (row["fit"], "the whole run"):
    if part["flat"]:
      said += f" Over {words} there is no gain, and B and C_mid mean nothing."
    elif not part["bent"]:
      said += f" The bend, at C_mid, lies outside of {words}: A is an extrapolation."
  return said


def notes(found: dict) -> list[str]:
  """Returns sentences about the columns."""
  lines = [
    f"R(C) = R0 + (A - R0) / (1 + (C_mid / C)^B), with R the share of held-out questions ({found['metric']}),"
    f" R0 that before training, C the {found['unit']} of training, from {found['burn_in']:g} on.",
    "In brackets: 95 % bootstrap intervals over seeds, of the mean curve. The prediction is fitted to what"
    " lies in the first half of the compute.",
  ]
  few = [len(row["seeds"]) for row in found["rows"] if 1 < len(row["seeds"]) < 5]
  if few:
    lines.append(f"With {min(few)} seeds no bootstrap interval reaches 95 %; these are too narrow.")
  for row in found["rows"]:
    if row["left_out"]:
      lines.append(f"{row['label']}: {row['left_out']} evaluations are left out: not all seeds have them.")
    if beyond := row["linear"]["without"]:
      lines.append(f"{row['label']}: {beyond} evaluations lie beyond R0 or A, and not in the linear form.")
  return lines


def write(out: Path, found: dict) -> Path:
  """Writes scale.html, one file that opens anywhere, without a server, scripts or a network."""
  html = (
    report.page(Path(__file__).parent, report.PAGES)
    .get_template("scale.html")
    .render(
      title="Accuracy against compute",
      head=HEAD,
      body=body(found),
      notes=notes(found),
      verdicts=verdicts(found),
      figures=figures.draw(found),
      rows=found["rows"],
      command=found["command"],
      palette=report.figures.COLOURS,
    )
  )
  return report.put(out / "scale.html", html)
