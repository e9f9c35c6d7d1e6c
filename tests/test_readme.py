"""The README and the pages behind it: short, and what they name exists."""

import importlib.util
import re
from pathlib import Path

import pytest

from configs import base
from grpojax.__main__ import COMMANDS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
NAMES = ("code_map", "data", "evaluating", "flags", "hardware", "metrics", "speed", "tpu", "workdir")
PAGES = [README, *(ROOT / "docs" / f"{name}.md" for name in NAMES)]
THEIRS = ("runs/", "exported/", "my.", "gs://", "/")  # what a reader's own paths begin with
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def test_the_readme_is_short_and_has_the_recipe_as_it_is():
  text = README.read_text()
  assert len(text.splitlines()) <= 150
  assert f"```python\n{(ROOT / 'configs' / 'gspo.py').read_text()}```" in text


@pages
def test_every_link_leads_somewhere(page):
  links = [link for link in re.findall(r"\]\(([^)]+)\)", page.read_text()) if "://" not in link]
  for link in links:
    name, _, anchor = link.partition("#")
    target = page.parent / name
    assert target.exists(), link
    assert not anchor or anchor in [slug(line) for line in target.read_text().splitlines()], link


def slug(line: str) -> str:
  """Returns the anchor that GitHub gives a heading, "" for other lines."""
  title = line.lstrip("#").strip().lower() if line.startswith("#") else ""
  return re.sub(r"[^\w\- ]", "", title).replace(" ", "-")


@pages
def test_every_file_that_is_named_exists(page):
  words = re.findall(r"(?<![\w./:-])[\w./-]*/[\w./-]*\w\.(?:py|md|png|sh|yaml)\b", page.read_text())
  for word in words:
    at = (ROOT, ROOT / "grpojax", page.parent)
    assert word.startswith(THEIRS) or any((folder / word).exists() for folder in at), word


@pages
def test_every_command_and_module_exists(page):
  text = page.read_text()
  assert set(re.findall(r"(?:^    |`)grpojax ([a-z]+)", text, re.M)) <= set(COMMANDS)
  for module in re.findall(r"python -m ([\w.]+)", text):
    assert module in ("grpojax", "pip") or importlib.util.find_spec(module), module


@pages
def test_every_flag_is_a_key_of_the_config(page):
  for path in re.findall(r"--config((?:\.\w+)+)", page.read_text()):
    assert any(has(base.get_config(scale), path.split(".")[1:]) for scale in ("mini", "local")), path


def has(node, keys: list[str]) -> bool:
  """Returns whether `keys` lead to a value."""
  for key in keys:
    if key not in node:
      return False
    node = node[key]
  return True
