"""Names on the pages exist: tests, modules, functions, config keys, metrics, and those of coming_from.md."""

import re

import pytest
from docs_pages import MADE_UP, ROOT, each_page, parses, snippets

from grpojax.config import recipe
from grpojax.recipes import base

TESTS = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}


@each_page
def test_tests_that_a_page_names_exist(name):
  text = (ROOT / name).read_text()
  files = set(re.findall(r"\btest_\w+\.py", text))
  assert files <= set(TESTS), f"{name}: {files - set(TESTS)}"
  functions = set(re.findall(r"\btest(?:_[a-z0-9]+){4,}\b(?!\.py)", text))
  missing = {fn for fn in functions if f"def {fn}(" not in "".join(TESTS.values())}
  assert not missing, f"{name}: {missing}"


@each_page
def test_modules_that_a_page_names_exist(name):
  for snippet in snippets(name):
    for dotted in re.findall(r"(?<![\w./-])(?:grpojax|experiments|benchmarks)(?:\.\w+)+", snippet):
      if dotted not in MADE_UP:
        assert exists(dotted), f"{name}: {dotted}"


def exists(dotted: str) -> bool:
  """Whether it is a module or a name that a module spells; nothing is imported."""
  path = ROOT / dotted.replace(".", "/")
  if path.is_dir() or path.with_suffix(".py").is_file():
    return True
  module = path.parent / "__init__.py" if path.parent.is_dir() else path.parent.with_suffix(".py")
  return module.is_file() and re.search(rf"\b{path.name}\b", module.read_text()) is not None


SOURCES = {path: path.read_text() for path in (ROOT / "grpojax").rglob("*.py")}
NAMED = re.compile(r"(?:[\w/]+/)?(\w+)\.py: (\w+)|(?:\w+\.)*(\w+)\.(\w+)(?:\(\))?")
ENDINGS = ("py", "json", "jsonl", "md", "html", "png", "npz")  # of files, not of names


@each_page
def test_functions_that_a_page_names_exist(name):
  """`file.py: name`, and `owner.name` of a file or a class of the package."""
  text = re.sub(r"```.*?```", "", (ROOT / name).read_text(), flags=re.DOTALL)
  for found in filter(None, map(NAMED.fullmatch, re.findall(r"`([^`\n]+)`", text))):
    owner, what = filter(None, found.groups())
    homes = [source for path, source in SOURCES.items() if path.stem == owner or f"class {owner}(" in source]
    if homes and owner not in KEYS and what not in ENDINGS:
      assert any(re.search(rf"\b{what}\b", source) for source in homes), f"{name}: {owner} has no {what}"


SCALES = [base.get_config(scale) for scale in ("mini", "local", "paper", "lake")]
KEYS = {key for scale in SCALES for key in scale}  # sections of a config, some of them named like a file


@each_page
def test_keys_that_a_page_names_exist(name):
  for path in re.findall(r"(?<![\w/])config((?:\.\w+)+)", (ROOT / name).read_text()):
    keys = path.split(".")[1:]
    known = keys[0] in ("json", "key", "KEY") or any(has(scale, keys) for scale in SCALES)
    assert known, f"{name}: config{path}"


def has(node, keys: list[str]) -> bool:
  """Whether `keys` lead to a value; what lies in a slot follows from its function."""
  for number, key in enumerate(keys):
    if keys[0] in ("objective", "reward", "process") and number >= 2:
      return True
    if key not in node:
      return keys[:1] == ["reward"] and number == 1
    node = node[key]
  return True


def test_every_metric_of_the_page_is_written_somewhere():
  table = (ROOT / "docs" / "metrics.md").read_text().partition("| | unit | |")[2].partition("\n\n")[0]
  names = [name for line in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", line.split("|")[1])]
  assert len(names) > 40
  source = "".join(SOURCES.values())
  for name in names:
    last = re.split(r"[/@]", name)[-1]  # before it may be the name of a reward, a phase or a penalty
    last = last.lstrip("0123456789")
    assert re.search(rf"""[/"'`_@}}]{re.escape(last)}|def {last}\b""", source), name


def test_the_page_of_recipes_has_each_with_its_first_sentence_and_source():
  page = (ROOT / "docs" / "recipes.md").read_text()
  rows = re.findall(r"^\| \[`(\w+)`\]\(.*?\) \| (.*?) \| (?:\[.*\]\((.*)\) )?\|$", page, re.MULTILINE)
  assert {name: why for name, why, _ in rows} == recipe.purposes()
  for name, _, url in rows:
    assert url in (ROOT / "configs" / f"{name}.py").read_text()


# The table of names elsewhere.

ROWS = [
  [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
  for line in (ROOT / "docs" / "coming_from.md").read_text().splitlines()
  if line.startswith("| ") and "**" not in line
][1:]


def test_the_table_is_long_and_every_row_says_where_the_name_is_from():
  assert len([row for row in ROWS if row[3] != "–"]) >= 50
  assert all(len(row) == 5 and any(cell != "–" for cell in row[:3]) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[3][:40])
def test_what_the_table_says_for_here_parses(row):
  for key, value in re.findall(r"`([\w.]+) = ([^`]+)`", " ".join(row[3:])):
    assert parses([], [f"--config.{key}={value}"]), f"{key} = {value}"
  for path in re.findall(r"`(\w+(?:\.\w+)+)`", " ".join(row[3:])):
    assert any(has(scale, path.split(".")) for scale in SCALES), path
