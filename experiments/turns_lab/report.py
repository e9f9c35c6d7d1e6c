"""Results -> results.json and Markdown tables."""

import json
import math
from pathlib import Path

from experiments.estimator_lab.report import claims_table, markdown, plain
from experiments.turns_lab import compare, games
from experiments.turns_lab.compare import BUDGET
from experiments.turns_lab.points import CREDITS, reference, sweep
from experiments.turns_lab.store import Find

COLUMNS = ("scale", "bias", "variance a token", "variance", f"error at {BUDGET} groups", "better below")


def rows(find: Find) -> list[dict]:
  """Returns a row per game and credit, and per game and point of a sweep."""
  listed = [("credits", name, name, point) for name, point in CREDITS.items()] + sweep()
  found = []
  for game in games.GAMES:
    for table, credit, x, point in listed:
      what = dict(table=table, credit=credit, game=game, x=x)
      found.append(what | compare.summary(find(point, game), find(reference(point), game)))
  return found


def write(out: Path, results: dict) -> None:
  """Writes results.json and tables.md into `out`."""
  text = json.dumps(plain(results), indent=1, ensure_ascii=False, allow_nan=False)
  (out / "results.json").write_text(text + "\n")
  parts = [
    "# Claims\n",
    claims_table(results["claims"]),
    "\nBelow, variance and error are ratios to those of RLOO on the same groups; ± is one standard error.\n",
  ]
  for table in dict.fromkeys(row["table"] for row in results["rows"]):
    parts += [f"\n# {table}\n", table_of(results["rows"], table)]
  (out / "tables.md").write_text("\n".join(parts) + "\n")


def table_of(found: list[dict], table: str) -> str:
  """Returns the rows of a table as Markdown, by credit, then by game."""
  mine = [row for row in found if row["table"] == table]
  order = list(dict.fromkeys(row["credit"] for row in mine))
  mine.sort(key=lambda row: order.index(row["credit"]))
  keys = ("credit", "game") if table == "credits" else ("credit", "game", "x")
  header = [table if key == "x" else key for key in keys]
  return markdown((*header, *COLUMNS), [(*(row[key] for key in keys), *_shown(row)) for row in mine])


def _shown(row: dict) -> tuple[str, ...]:
  """Returns a row's cells: each number with its standard error, bias only where it can be told from zero."""
  mse = f"log mse ratio at {BUDGET} groups"
  return (
    _with_error(row["scale"], row["scale/error"]),
    _bias(row),
    _with_error(row["variance"], row["variance/error"], 0),
    _ratio(row["log variance ratio"], row["log variance ratio/error"]),
    _ratio(row[mse], row[f"{mse}/error"]),
    _tokens(row),
  )


def _bias(row: dict) -> str:
  """Returns the bias if it can be told from zero, else what it is below; 0 where it is enumerated."""
  if row["bias told"]:
    return _with_error(row["bias"], row["bias/error"])
  limit = math.sqrt(max(row["bias2"], 0.0) + compare.TOLD * row["bias2/error"])
  return f"< {limit:.3f}" if limit > compare.EXACT else "0"


def _with_error(x: float, error: float, digits: int = 3) -> str:
  return f"{x:.{digits}f} ± {error:.{digits}f}"


def _ratio(log: float, error: float) -> str:
  """Returns a geometric mean, and its error to first order."""
  return _with_error(math.exp(log), math.exp(log) * error, 2)


def _tokens(row: dict) -> str:
  """Returns the tokens a gradient below which the credit's squared error is smaller than RLOO's."""
  tokens = row["better below tokens"]
  if abs(row["log variance ratio"]) + row["log variance ratio/error"] < compare.EXACT:
    return "–"  # RLOO itself, or its scale
  return "never" if tokens == 0 else f"{tokens:.0f}" if math.isfinite(tokens) else "always"
