"""Records of runs -> results.json, without dates and durations: the same runs give the same bytes.

Minutes of a row are for the table alone.

    {"name": ..., "rows": [{"name": ..., "final": {...}, "over_previous": {...}, ...}], "curves": {...}, ...}

A value of several seeds is {"seeds": [0, 1, ...], "values": [...], "mean": ., "low": ., "high": .}, the ends
of its 95 % interval null for a single seed.  Shares are shares, not per cent.
"""

import json
from pathlib import Path

import numpy as np

from grpojax.runtime import storage
from grpojax.tools.study import Row, Study, machine, plan, statistics
from grpojax.tools.study.plan import Run

TOKENS = "num_tokens"  # generated in a step, kept or not
WINDOW = 5  # steps: curves of training are means over so many, the newest last


def collect(study: Study, runs: list[Run], command: str) -> dict:
  """Collects what table and figures show, of the runs that are finished."""
  records = _with_before({_key(run): plan.records(run) for run in runs if plan.is_done(run)}, runs)
  missing = [f"{run.row.label}, seed {run.seed}" for run in runs if _key(run) not in records]
  of = {
    row.label: {run.seed: records[_key(run)] for run in runs if _key(run) in records and run.row == row}
    for row in study.rows
  }
  rows = [row for row in study.rows if of[row.label]]
  return dict(
    name=study.name,
    title=study.title,
    command=command,
    environment=machine.noted([run.workdir for run in runs if _key(run) in records]),
    metric=study.metric,
    missing=missing,
    rows=_rows(study, rows, of, runs),
    curves={row.label: _curves(study, row, of[row.label]) for row in rows},
  )


def _with_before(records: dict, runs: list[Run]) -> dict:
  """Gives runs that were not evaluated before training the evaluation of their group's, of the same seed.

  Leaves out runs of which no finished run of the group has one yet.
  """
  first = {key: _of_kind(found, "eval")[0] for key, found in records.items()}
  measured = {(run.row.group, run.seed): e for run in runs if (e := first.get(_key(run))) and e["step"] == 0}
  whole = {}
  for run in runs:
    key, shared = _key(run), measured.get((run.row.group, run.seed))
    if key in records and first[key]["step"] == 0:
      whole[key] = records[key]
    elif key in records and shared:
      whole[key] = [shared, *records[key]]
  return whole


def write(out: Path, results: dict) -> Path:
  """Writes results.json, whole or not at all."""
  path = out / "results.json"
  rows = [{key: value for key, value in row.items() if key != "minutes"} for row in results["rows"]]
  text = json.dumps(results | {"rows": rows}, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
  storage.write(path, text, encoding="utf-8")
  return path


def _key(run: Run) -> tuple[str, int]:
  return run.row.label, run.seed


def _rows(study: Study, rows: list[Row], of: dict, runs: list[Run]) -> list[dict]:
  """Returns one dict a row, compared within its group."""
  found = []
  for group in dict.fromkeys(row.group for row in rows):
    mine = [row for row in rows if row.group == group]
    finals = [_by_seed(of[row.label], lambda r: _final(r, study)) for row in mine]
    spent = [_at_equal(study, [of[row.label] for row in mine], word) for word in study.spends]
    for i, row in enumerate(mine):
      records = of[row.label]
      found.append(
        dict(
          label=row.label, name=row.name, group=group, at=row.at, quoted=row.quoted, changes=row.changes,
          command=plan.command(next(run for run in runs if run.row == row)),
          before=_several(_by_seed(records, lambda r: _first(r, study.metric))),
          final=_several(finals[i]),
          over_previous=_between(finals[i], finals[i - 1]) if i else None,
          over_first=_between(finals[i], finals[0]) if i else None,
          minutes=float(np.mean([_minutes(r) for r in records.values()])),
        )
        | {key: value for columns in spent for key, value in columns[i].items()}
      )  # fmt: skip
  return found


def _at_equal(study: Study, rows: list[dict[int, list]], word: str) -> list[dict]:
  """Returns for each row of a group what it spends of `word`, and its metric where all have spent as much."""
  counted, key = study.spends[word], key_of(word)
  budget = int(min(_spent(records, counted)[-1] for row in rows for records in row.values()))
  equal = [_by_seed(row, lambda r: _at(r, study, counted, budget)) for row in rows]
  return [
    {
      key: _several(_by_seed(row, lambda r: _spent(r, counted)[-1])),
      f"equal_{key}": budget,
      f"at_equal_{key}": _several(equal[i]),
      f"over_first_at_equal_{key}": _between(equal[i], equal[0]) if i else None,
    }
    for i, row in enumerate(rows)
  ]


def key_of(word: str) -> str:
  """Returns the word of what is spent as a key of results.json."""
  return word.replace(" ", "_")


def _by_seed(records: dict[int, list], value) -> dict[int, float]:
  return {seed: value(r) for seed, r in sorted(records.items())}


def _several(values: dict[int, float]) -> dict:
  """Returns values by seed in the form of results.json."""
  estimate = statistics.estimate(list(values.values()))
  return dict(seeds=list(values), values=_short(list(values.values()))) | _interval(estimate)


def _between(after: dict[int, float], before: dict[int, float]) -> dict | None:
  """Returns the paired difference, over the seeds that both rows have."""
  both = [seed for seed in after if seed in before]
  if not both:
    return None
  values = [after[seed] - before[seed] for seed in both]
  return dict(seeds=both, values=_short(values)) | _interval(statistics.estimate(values))


def _interval(estimate: statistics.Estimate) -> dict:
  return dict(zip(("mean", "low", "high"), _short(estimate), strict=True))


def _short(values) -> list[float | None]:
  """Rounds to six digits, more than any value has; None for what is unknown."""
  return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values]


def _of_kind(records: list[dict], kind: str) -> list[dict]:
  return [record for record in records if record["kind"] == kind]


def _first(records: list[dict], metric: str) -> float:
  return _of_kind(records, "eval")[0][metric]


def _final(records: list[dict], study: Study) -> float:
  """Returns the mean of the last evaluations; the one before training is none of them."""
  return float(np.mean([e[study.metric] for e in _last(records, study)]))


def _last(records: list[dict], study: Study) -> list[dict]:
  return _of_kind(records, "eval")[1:][-study.last :]


def _spent(records: list[dict], counted: str) -> np.ndarray:
  """Returns what was spent until the end of each training step, [steps], evaluations not counted."""
  return np.cumsum([record[counted] for record in _of_kind(records, "train")])


def _minutes(records: list[dict]) -> float:
  """Returns the time from the run's start to its last record; of a run that was resumed, of what is kept."""
  return sum(record.get("time/step", 0.0) for record in records) / 60


def _at(records: list[dict], study: Study, counted: str, budget: float) -> float:
  """Interpolates the metric between evaluations to where so much of `counted` was spent.

  Where a study has the mean of several evaluations, it is that of as many points, as far along the budget as
  those evaluations are along the run.
  """
  evals, last = _of_kind(records, "eval"), _last(records, study)
  spent = np.concatenate([[0], _spent(records, counted)])
  points = [budget * e["step"] / last[-1]["step"] for e in last]
  read = np.interp(points, [spent[e["step"]] for e in evals], [e[study.metric] for e in evals])
  return float(np.mean(read))


def _curves(study: Study, row: Row, records: dict[int, list]) -> dict:
  """Returns {metric: {"steps": [N], "tokens": [seeds, N], "values": [seeds, N]}} of figures and sections."""
  shown = [f for f in study.figures if not f.rows or row.name in f.rows or row.label in f.rows]
  wanted = dict.fromkeys([*(metric for figure in shown for metric in figure.metrics), *study.reads])
  return {metric: curve for metric in wanted if (curve := _curve(metric, list(records.values())))}


def _curve(metric: str, runs: list[list[dict]]) -> dict | None:
  names = metric.split(" / ")
  taken = [[r for r in records if all(r.get(name) is not None for name in names)] for records in runs]
  steps = [r["step"] for r in taken[0]]
  if not steps or any([r["step"] for r in one] != steps for one in taken):
    return None  # a run has gaps: its report says so
  parts = [[_smooth([r[name] for r in one], taken[0][0]["kind"]) for one in taken] for name in names]
  values = np.array(parts[0])
  if len(parts) == 2:  # a mean of a part: sum over sum, and nothing where there is no such part
    values = np.divide(values, parts[1], out=np.full_like(values, np.nan), where=np.array(parts[1]) > 0)
  spent = [np.concatenate([[0], _spent(records, TOKENS)])[steps] for records in runs]
  return dict(steps=steps, tokens=np.array(spent).tolist(), values=[_short(v) for v in values])


def _smooth(values: list[float], kind: str) -> np.ndarray:
  """Smooths by means over the last WINDOW steps of training; evaluations stay as they are."""
  if kind != "train":
    return np.array(values)
  sums = np.cumsum(np.concatenate([[0.0], values]))
  end = np.arange(1, len(values) + 1)
  begin = np.maximum(end - WINDOW, 0)
  return (sums[end] - sums[begin]) / (end - begin)
