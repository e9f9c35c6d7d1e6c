"""Results -> results.json and Markdown tables."""

import json
import math
from pathlib import Path

from experiments.estimator_lab.claim import Claim

COLUMNS = ("cosine", "norm", "noise", "lost")


def write(out: Path, results: dict) -> None:
  """Writes results.json and tables.md into `out`."""
  text = json.dumps(plain(results), indent=1, ensure_ascii=False, allow_nan=False)
  (out / "results.json").write_text(text + "\n")
  parts = [
    "# Claims\n",
    claims_table(results["claims"]),
    "\n# Variants\n",
    "cosine, norm: of the expected gradient against the true one; noise: trace of the covariance over",
    "its square; lost: share of Σ weight |A| without gradient.  ± is the deviation over policies.\n",
    rows_table(results["variants"], ("scenario", "variant"), _with_spread),
    "\n# Sweeps\n",
    "± is the standard error from sampled groups; none where all groups were enumerated.\n",
    rows_table(results["sweeps"], ("sweep", "variant", "x"), _with_error),
  ]
  (out / "tables.md").write_text("\n".join(parts) + "\n")


def claims_table(claims: list[Claim]) -> str:
  """Returns one line per claim: text, source, whether it is algebra, rule with its thresholds, verdict."""
  kind = {True: "identity", False: "finding"}
  rows = [(c.text, c.source, kind[c.identity], c.rule, c.verdict) for c in claims]
  return markdown(("claim", "source", "kind", "rule", "verdict"), rows)


def rows_table(rows: list[dict], names: tuple[str, ...], show) -> str:
  """Formats rows of a table or sweep, `names` first, then COLUMNS as `show` writes them."""
  order = list(dict.fromkeys(row[names[0]] for row in rows))
  ordered = sorted(rows, key=lambda row: order.index(row[names[0]]))
  return markdown(
    (*names, *COLUMNS),
    [tuple(row[n] for n in names) + tuple(show(row, c) for c in COLUMNS) for row in ordered],
  )


def _with_spread(row: dict, key: str) -> str:
  return f"{row[key]:.3g} ± {row[f'{key}/spread']:.1g}"


def _with_error(row: dict, key: str) -> str:
  error = row[f"{key}/error"]
  return f"{row[key]:.3g}" + (f" ± {error:.1g}" if error else "")


def markdown(header: tuple[str, ...], rows: list[tuple]) -> str:
  line = lambda cells: "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"
  return "\n".join([line(header), line(["---"] * len(header)), *map(line, rows)])


def plain(x):
  """Converts to strict JSON: claims as dicts, infinities and NaN as null."""
  if isinstance(x, Claim):
    return plain(x._asdict())
  if isinstance(x, dict):
    return {str(key): plain(value) for key, value in x.items()}
  if isinstance(x, list | tuple):
    return [plain(value) for value in x]
  return None if isinstance(x, float) and not math.isfinite(x) else x
