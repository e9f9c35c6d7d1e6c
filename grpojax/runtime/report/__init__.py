"""A workdir -> report.html: one file that opens anywhere, without a server or a network.

    grpojax report runs/grpo [runs/dapo ...]

figures.py draws pictures, which need no scripts; where scripts run, charts.js draws the same from the numbers
that curves.py puts into the page, and browser.js shows the completions.  page.html, run.html and style.css
arrange and escape everything from the run, and the page lets no scripts run but its own.
"""

import functools
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import jinja2

from grpojax.runtime import console, diagnosis, metrics, storage
from grpojax.runtime.report import completions, curves, figures, over_k

PAGES = Path(__file__).parent
SCRIPTS = ("uplot/uPlot.iife.min.js", "charts.js", "browser.js", "start.js")
WATCH = "watch.js"  # in place of start.js, where a server gives newer numbers


def write(workdir: str | os.PathLike, others: Sequence[str | os.PathLike] = ()) -> Path:
  """Writes `<workdir>/report.html` from what the run has recorded so far; returns its path.

  The charts show the runs in the folders `others` too.
  """
  workdir = Path(workdir)
  html = render(workdir, payload([workdir, *map(Path, others)]))
  return put(workdir / "report.html", html)


class Files:
  """The records of runs, of which each look reads what is new."""

  def __init__(self):
    self.records = metrics.Follower("metrics")
    self.groups = metrics.Follower("completions", completions.to_json)


def payload(workdirs: list[Path], files: Files | None = None) -> dict:
  """Returns what the page's scripts show: the charts of all these runs, the completions of the first."""
  files, runs = files or Files(), {}
  for workdir in dict.fromkeys(workdir.resolve() for workdir in workdirs):
    name = workdir.name if workdir.name not in runs else str(workdir)
    runs[name] = _some(workdir, files.records.read(workdir))
  groups = completions.payload(files.groups.read(workdirs[0]))
  evals = sum(record["kind"] == "eval" for record in next(iter(runs.values())))
  return curves.payload(runs) | dict(completions=groups, evals=evals)


def render(workdir: Path, data: dict, live: bool = False) -> str:
  """Returns the page of a run, with `data` for its scripts; a `live` one asks its server for more of it.

  A live page has no pictures: it is made anew too often for that, and is nothing without scripts.
  """
  records = _some(workdir, metrics.read(workdir))
  config, settings = storage.read_text(workdir / "config.json"), _object(workdir / "config.json")
  spoilt = [metrics.spoilt_sentence(workdir, name) for name in ("metrics", "completions")]
  if settings is None:
    spoilt.append(f"{workdir / 'config.json'} is spoilt")
    settings = {}
  evals = [record for record in records if record["kind"] == "eval"]
  groups = [group | dict(turns=completions.turns(group)) for group in metrics.read(workdir, "completions")]
  names = (*SCRIPTS[:-1], WATCH) if live else SCRIPTS
  scripts = [(PAGES / name).read_text(encoding="utf-8") for name in names]
  return page(PAGES).get_template("run.html").render(
    title=settings.get("name") or workdir.resolve().name,
    facts=_facts(records, settings),
    live=live,
    about=_about(workdir),
    findings=list(diagnosis.sentences(diagnosis.last(records)).values()),
    warnings=[*filter(None, spoilt), *_warnings(records)],
    evals=evals,
    rows=console.comparison(evals[0] if len(evals) > 1 else {}, evals[-1]) if evals else [],
    figures=data["charts"] if live else figures.draw(records),
    over_k=None if live else _over_k(workdir),
    samples=[[g for g in groups if g["step"] == step][:2] for step in _first_and_last(groups)],
    runs=[run["name"] for run in data["runs"]],
    mean_of=max(run["main"]["mean_of"] for run in data["runs"]),
    browsed=data["completions"],
    commands=storage.read_text(workdir / "commands.txt"),
    config=config,
    palette=figures.COLOURS,
    data=curves.script_json(data),
    scripts=scripts,
    policy=f"; script-src {' '.join(map(curves.allowed, scripts))}" + "; connect-src 'self'" * live,
  )


def news(workdirs: list[Path], files: Files) -> dict:
  """Returns what a live page shows anew: the payload, and the lines of its head."""
  records = _some(workdirs[0], files.records.read(workdirs[0]))
  facts = _facts(records, _object(workdirs[0] / "config.json") or {})
  findings = diagnosis.sentences(diagnosis.last(records)).values()
  return payload(workdirs, files) | dict(facts=console.visible(facts), findings=list(findings))


def _some(workdir: Path, records: list[dict]) -> list[dict]:
  """Returns the run's records.  Raises FileNotFoundError where there are none."""
  if not records:
    raise FileNotFoundError(f"{workdir}/metrics.jsonl has no records; is this a run's --workdir?")
  return records


@functools.cache
def page(*folders: Path) -> jinja2.Environment:
  """Returns the templates of these folders.  What is filled in is escaped."""
  loader = jinja2.FileSystemLoader(folders)
  seen = lambda value: console.visible(value) if isinstance(value, str) else value
  return jinja2.Environment(
    loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=seen
  )


def put(path: Path, html: str) -> Path:
  """Writes a page, whole or not at all; returns its path."""
  storage.write(path, html, encoding="utf-8", errors="replace")
  return path


def _facts(records, config) -> str:
  """Returns one line: step, duration, scale, seed and the time of the last record."""
  train = [record["step"] for record in records if record["kind"] == "train"]
  seconds = sum(metrics.phase_seconds(records).values())
  facts = [f"step {max(train, default=0)} of {config.get('steps', max(train, default=0))}"]
  facts += [f"{key} {config[key]}" for key in ("scale", "seed") if key in config]
  facts += [console.duration(seconds)] if seconds else []
  facts.append(f"last record {datetime.fromtimestamp(records[-1]['wall'], UTC):%Y-%m-%d %H:%M} UTC")
  return " · ".join(facts)


def _over_k(workdir: Path) -> dict | None:
  """Returns what the newest step's curves.json shows (`grpojax evaluate --curves`); None of none."""
  steps = {file.parent.name.removeprefix("step_"): file for file in workdir.glob("eval/step_*/curves.json")}
  newest = max(filter(str.isdigit, steps), key=int, default=None)
  found = _object(steps[newest]) if newest else None
  return over_k.shown(found) if found else None


def _about(workdir: Path) -> dict[str, str]:
  """Returns what about.json says the run is: model, data, device, commit, objective; {} if it is spoilt."""
  found = _object(workdir / "about.json") or {}
  return {name: text for name, text in found.items() if isinstance(text, str)}


def _object(path: Path) -> dict | None:
  """Returns the object of a JSON file, {} of none or an empty one; None if the file is spoilt."""
  try:
    return dict(json.loads(storage.read_text(path) or "{}"))
  except (ValueError, TypeError):
    return None


def _warnings(records) -> list[str]:
  """Returns what the curves alone would hide: values that were not finite, steps without a record."""
  broken = {}
  for record in records:
    if record.get("dynamic_sampling/keep_rate") == 0:
      continue  # of what was kept, nothing was measured
    for name, value in record.items():
      if value is None:
        broken.setdefault(name, []).append(record["step"])
  warnings = [
    f"{name} was not finite in {len(steps)} records, first at step {steps[0]}: gaps in its curve."
    for name, steps in broken.items()
  ]
  train = {record["step"] for record in records if record["kind"] == "train"}
  missing = sorted(set(range(min(train), max(train))) - train) if train else []
  if missing:
    warnings.append(f"{len(missing)} training steps have no record, the first is {missing[0]}.")
  return warnings


def _first_and_last(groups) -> list[int]:
  steps = [group["step"] for group in groups]
  return sorted({min(steps), max(steps)}) if steps else []
