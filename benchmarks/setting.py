"""Setting of a benchmark: command, date, commit, machine, versions; and the files of its results."""

import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

import jax

from grpojax.tools.study.machine import here

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def setting(module: str) -> dict:
  others = ".", ":!benchmarks/results", ":!docs"  # than what benchmarks write themselves
  changed = _git("status", "--porcelain", "--untracked-files=no", "--", *others)
  commit = _git("describe", "--always") + ("-dirty" if changed else "")
  return {
    "command": " ".join([f"python -m {module}", *map(_short, sys.argv[1:])]),
    "date": time.strftime("%Y-%m-%d"),
    "commit": commit,
    "machine": here()["processor"],
    "load": os.getloadavg()[0],
    "versions": {"python": platform.python_version(), "jax": jax.__version__},
  }


def _git(*command: str) -> str:
  return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def _short(argument: str) -> str:
  """Shortens an absolute path, which only this machine knows, to its last three parts."""
  return "/".join(Path(argument).parts[-3:]) if argument.startswith("/") else argument


def where(now: dict) -> str:
  """Formats the line below a table."""
  machine = f"{now['machine']}, load {now['load']:.0f}"
  return f"{machine}, {now['date']}, commit {now['commit']}, jax {now['versions']['jax']}, `{now['command']}`"


def keep(name: str, found: dict) -> None:
  """Writes benchmarks/results/<name>.json."""
  RESULTS.mkdir(exist_ok=True)
  (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1))


def recorded(name: str) -> dict:
  """Reads benchmarks/results/<name>.json."""
  return json.loads((RESULTS / f"{name}.json").read_text())


def report(name: str, text: str, page: str = "performance") -> None:
  """Prints a table with the line below it, and puts both into a page of docs/, between its marks."""
  print(text)
  page = ROOT / "docs" / f"{page}.md"
  start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
  between = re.compile(f"(?<={start}\n).*?(?={end})", re.DOTALL)
  page.write_text(between.sub(lambda _: text + "\n", page.read_text()))
