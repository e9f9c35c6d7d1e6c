"""Results -> results.json and Markdown tables."""

import json
import math
from pathlib import Path

from experiments.estimator_lab.report import claims_table, markdown, plain
from experiments.turns_lab import compare, games
from experiments.turns_lab.points import CREDITS, TRAJECTORY, sweep
from experiments.turns_lab.store import Find

COLUMNS = ("scale", "bias", "variance a token", "variance / RLOO's", f"error at {compare.BUDGET} groups / RLOO's", "better below")


def rows(find: Find) -> list[dict]:
  """Returns a row per game and credit, and per game and point of a sweep."""
  found = []
  for game in games.GAMES:
    reference = find(TRAJECTORY, game)
    for name, point in CREDITS.items():
      found.append(dict(table="credits", game=game, credit=name) | compare.summary(find(point, game), reference))
    for knob, line, x, point in sweep():
      numbers = compare.summary(find(point, game), reference)
      found.append(dict(table=knob, game=game, credit=line, x=x) | numbers)
  return found


def write(out: Path, results: dict) -> None:
  """Writes results.json and tables.md into `out`."""
  text = json.dumps(plain(results), indent=1, ensure_ascii=False, allow_nan=False)
  (out / "results.json").write_text(text + "\n")
  parts = ["# Claims\n", claims_table(results["claims"])]
  for table in dict.fromkeys(row["table"] for row in results["rows"]):
    mine = [row for row in results["rows"] if row["table"] == table]
    names = ("game", "credit") if table == "credits" else ("credit", "game", "x")
    mine.sort(key=lambda row: "" if table == "credits" else row["credit"])
    header = (*names[:-1], table) if table != "credits" else names
    cells = [tuple(row[n] for n in names) + _shown(row) for row in mine]
    parts += [f"\n# By {table}\n" if table != "credits" else "\n# Credits\n", markdown((*header, *COLUMNS), cells)]
  (out / "tables.md").write_text("\n".join(parts) + "\n")


def _shown(row: dict) -> tuple[str, ...]:
  """Returns a row's cells: each number with its standard error, a bias only where it can be told from zero."""
  mse = f"log mse ratio at {compare.BUDGET} groups"
  limit = math.sqrt(max(row["bias2"], 0.0) + compare.TOLD * row["bias2/error"])
  return (
    _with_error(row["scale"], row["scale/error"]),
    _with_error(row["bias"], row["bias/error"]) if row["bias told"] else f"< {limit:.3f}",
    _with_error(row["variance"], row["variance/error"], 0),
    _ratio(row["log variance ratio"], row["log variance ratio/error"]),
    _ratio(row[mse], row[f"{mse}/error"]),
    _tokens(row),
  )


def _with_error(x: float, error: float, digits: int = 3) -> str:
  return f"{x:.{digits}f} ± {error:.{digits}f}"


def _ratio(log: float, error: float) -> str:
  """Returns a geometric mean, and its error to first order."""
  return _with_error(math.exp(log), math.exp(log) * error, 2)


def _tokens(row: dict) -> str:
  """Returns the tokens a gradient below which the credit's squared error is smaller than RLOO's."""
  tokens = row["better below tokens"]
  if tokens == 0:
    return "never"
  return f"{tokens:.0f}" if math.isfinite(tokens) else "always"
