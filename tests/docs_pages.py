"""Rails of the tests of the documentation: its pages, the code in them, and whether a config takes flags."""

import contextlib
import re
from pathlib import Path

import pytest

from grpojax import objective
from grpojax.config import commandline

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "docs", ROOT / "benchmarks", ROOT / "conformance")
PAGES = [ROOT / "README.md"]
PAGES += [page for folder in FOLDERS for page in sorted(folder.rglob("*.md")) if "_build" not in page.parts]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
each_page = pytest.mark.parametrize("name", NAMES)
MADE_UP = {"experiments.length"}  # modules that a page has the reader write


def snippets(name: str) -> list[str]:
  """Lines of code of a page, those that a backslash continues made one, and what is between backticks."""
  found, fenced = [], False
  for line in re.sub(r"\\\n\s*", " ", (ROOT / name).read_text()).splitlines():
    if line.lstrip().startswith("```"):
      fenced = not fenced
    elif fenced or line.startswith("    "):
      found.append(line)
    else:
      found += re.findall(r"`([^`]+)`", line)
  return found


def parses(recipes: list[str], overrides: list[str]) -> bool:
  """Whether a config takes the flags: the one that is named, or else some scale of base.py."""
  own = any("module:" in word or "my." in word for word in overrides)  # functions that a reader writes
  for recipe in recipes or ("--config=base", "--config=base:local"):
    with contextlib.suppress(ValueError):
      config = commandline.config_of([recipe, *overrides])
      return own or bool(objective.build(config.objective))
  return False
