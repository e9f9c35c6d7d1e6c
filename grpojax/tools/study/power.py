"""What a study can tell from nothing: from the spread of the seeds that are finished, or as it expects.

The first seeds of a study are its pilot: how they scatter says how many more are needed.  Which row is better
must not decide how many are run.
"""

from typing import NamedTuple

import numpy as np

from grpojax.tools.study import Study, results, statistics
from grpojax.tools.study.plan import Run
from grpojax.tools.study.table import power, seeds


class Spread(NamedTuple):
  """Standard deviations over seeds, in points, pooled over rows."""

  single: float  # of a row's accuracy
  paired: float  # of the difference between a row and the one before it
  source: str  # where they are known from
  widest: str = ""  # the row that scatters most, and by how much
  widest_by: float = 0.0


def spread(study: Study, runs: list[Run], left: list[Run]) -> Spread:
  """Returns what finished seeds show, or what the study expects; 0 is unknown."""
  expected = Spread(study.spread, study.scatter, "as the study expects")
  if len(left) == len(runs):
    return expected
  rows = results.collect(study, runs, "")["rows"]
  several = [row for row in rows if len(row["final"]["seeds"]) > 1]
  if not several:
    return expected
  single = [row["final"]["values"] for row in several]
  paired = [d["values"] for row in several if (d := row["over_previous"]) and len(d["values"]) > 1]
  deviations = [100 * np.std(values, ddof=1) for values in single]
  most = int(np.argmax(deviations))
  source = f"as {sum(map(len, single))} finished runs of {len(several)} rows do"
  return Spread(pooled(single), pooled(paired), source, several[most]["label"], float(deviations[most]))


def pooled(samples: list[list[float]]) -> float:
  """Returns the pooled standard deviation of samples of shares, in points; 0 where there is none."""
  freedom = sum(len(values) - 1 for values in samples)
  squares = sum((len(values) - 1) * np.var(values, ddof=1) for values in samples)
  return float(100 * np.sqrt(squares / freedom)) if freedom else 0.0


def describe(study: Study, runs: list[Run], left: list[Run]) -> list[str]:
  """Says what intervals and differences the planned seeds are good for; [] where nothing is known."""
  planned = len({run.seed for run in runs})
  if planned == 1:
    return []
  found, lines = spread(study, runs, left), []
  if found.single:
    lines.append(f"{seeds(planned)}: {_interval(study, found.single, planned)}, {found.source}")
  if found.widest:
    lines.append(f"the row that scatters most, {found.widest}: {_interval(study, found.widest_by, planned)}")
  if found.paired:
    lines.append(f"{power(found.paired, planned)} ({found.source})")
  return lines


def _interval(study: Study, deviation: float, planned: int) -> str:
  """Formats "± 1.3 points of a single row if it scatters by 2.1 from seed to seed; ± 1.5 takes 10 seeds"."""
  half = statistics.half_width(deviation, planned)
  said = f"± {half:.1f} points of a single row if it scatters by {deviation:.1f} from seed to seed"
  if study.width:
    said += f"; ± {study.width:g} takes {seeds(statistics.seeds_for(deviation, study.width))}"
  return said
