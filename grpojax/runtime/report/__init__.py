"""A workdir -> report.html: one file that opens anywhere, without a server, scripts or a network.

    grpojax report runs/grpo

figures.py draws; page.html, run.html and style.css arrange and escape everything from the run.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import jinja2

from grpojax.runtime import console, diagnosis, metrics, storage
from grpojax.runtime.report import figures

PAGES = Path(__file__).parent


def write(workdir: str | os.PathLike) -> Path:
  """Writes `<workdir>/report.html` from what the run has recorded so far; returns its path."""
  workdir = Path(workdir)
  records = metrics.read(workdir)
  if not records:
    raise FileNotFoundError(f"{workdir}/metrics.jsonl has no records; is this a run's --workdir?")
  config, settings = _text(workdir / "config.json"), {}
  spoilt = [metrics.spoilt_sentence(workdir, name) for name in ("metrics", "completions")]
  try:
    settings = dict(json.loads(config or "{}"))
  except (ValueError, TypeError):
    spoilt.append(f"{workdir / 'config.json'} is spoilt")
  evals = [record for record in records if record["kind"] == "eval"]
  groups = metrics.read(workdir, "completions")
  html = page(PAGES).get_template("run.html").render(
    title=settings.get("name") or workdir.resolve().name,
    facts=_facts(records, settings),
    findings=diagnosis.sentences(diagnosis.last(records)).values(),
    warnings=[*filter(None, spoilt), *_warnings(records)],
    evals=evals,
    rows=console.comparison(evals[0] if len(evals) > 1 else {}, evals[-1]) if evals else [],
    figures=figures.draw(records),
    samples=[[g for g in groups if g["step"] == step][:2] for step in _first_and_last(groups)],
    commands=_text(workdir / "commands.txt"),
    config=config,
    palette=figures.COLOURS,
  )
  return put(workdir / "report.html", html)


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


def _text(path: Path) -> str:
  return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
