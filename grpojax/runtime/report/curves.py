"""Records -> the numbers that the page's scripts draw: each run's metrics, over steps, tokens and seconds.

The charts are those of figures.py.  A run of more than POINTS records is thinned: every point is then the
mean of as many records in a row, and the page says of how many.
"""

import base64
import hashlib
import json
import math

import numpy as np

from grpojax.runtime import console, metrics
from grpojax.runtime.report import figures, specs
from grpojax.runtime.report.specs import Chart

POINTS = 2000  # of a curve; more than a screen has columns


def payload(runs: dict[str, list[dict]]) -> dict:
  """Returns what the scripts draw of these runs {name: records}: `charts`, and of each run its numbers."""
  together = [record for records in runs.values() for record in records]
  charts = specs.charts(together)
  wanted = {metric for chart in charts for metric in chart.curves}
  wanted |= {f"{metric}_ci95" for metric in wanted}
  return dict(
    charts=[_chart(chart) for chart in charts],
    runs=[of_run(name, records, wanted) for name, records in runs.items()],
  )


def _chart(chart: Chart) -> dict:
  """Returns a chart as the scripts read it; colours and dashes are those of the pictures."""
  curves = [
    dict(metric=metric, label=console.visible(label), colour=colour, dash=dash)
    for (metric, label), (colour, dash) in zip(chart.curves.items(), figures.styles(), strict=False)
  ]
  part = "cold_start" if chart.kinds == ("cold_start",) else "main"
  return chart._asdict() | dict(curves=curves, scale=chart.scale, part=part)


def of_run(name: str, records: list[dict], wanted: set[str]) -> dict:
  """Returns a run's name, its `x` {unit: [N]}, and `y` {metric: [N]} of the wanted metrics.

  Of the values null was not finite, and "" was not measured in that record.
  """
  found = {"name": console.visible(name)}
  for part, kinds in ("main", ("train", "eval")), ("cold_start", ("cold_start",)):
    own = [metrics.of_drawn(record) for record in records if record["kind"] in kinds]
    size = max(math.ceil(len(own) / POINTS), 1)
    groups = [own[i : i + size] for i in range(0, len(own), size)]
    found[part] = dict(x=_axes(own, size), y=_columns(groups, wanted), mean_of=size)
  return found


def _columns(groups: list[list[dict]], wanted: set[str]) -> dict[str, list]:
  """Returns {metric: a value for each group of records}."""
  names = {name for group in groups for record in group for name in record} & wanted
  return {name: [_value(group, name) for group in groups] for name in sorted(names)}


def _value(records: list[dict], name: str) -> float | str | None:
  """Returns the mean of a metric; None where a value was not finite, "" where none was measured."""
  values = [record[name] for record in records if name in record]
  if not values:
    return ""
  return None if None in values else _short(np.mean(values))


def _axes(records: list[dict], size: int) -> dict[str, list]:
  """Returns the last step of each group of records, and the tokens and seconds up to there."""
  tokens = np.cumsum([record.get("num_tokens") or 0 for record in records])
  seconds = np.cumsum([record.get("time/step") or 0 for record in records])
  steps = np.array([record["step"] for record in records])
  last = [min(i + size, len(records)) - 1 for i in range(0, len(records), size)]
  pick = lambda x: [_short(v) for v in x[last]] if len(records) else []
  return dict(step=pick(steps), tokens=pick(tokens), seconds=pick(seconds))


def _short(value: float) -> float:
  return float(f"{float(value):.7g}")


def script_json(data) -> str:
  """Returns JSON for the inside of a script element, which no text in it can end."""
  text = json.dumps(data, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 and surrogates are escapes
  return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def allowed(script: str) -> str:
  """Returns the source that a Content-Security-Policy names to let just this inline script run."""
  return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
