"""Commands, flags, links, paths and names on the pages exist.  Addresses elsewhere are not asked for."""

import contextlib
import importlib.util
import re
import shlex
from pathlib import Path
from urllib.parse import urlparse

import pytest

from grpojax.__main__ import COMMANDS
from grpojax.config import commandline

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "docs", ROOT / "benchmarks")
PAGES = [ROOT / "README.md"]
PAGES += [page for folder in FOLDERS for page in sorted(folder.rglob("*.md")) if "_build" not in page.parts]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
each_page = pytest.mark.parametrize("name", NAMES)
MADE_UP = {"experiments.length"}  # modules that a page has the reader write
WRITTEN = ("runs/", "dppo_config.py")  # and configs
MARKED = re.compile(r"(?<![\w/.-])(?<!from )(grpojax [a-z]+|python -m [\w.]+)(.*)")


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


def words_of(text: str) -> list[str]:
  """Words as a shell splits them, up to the end of the command."""
  words = text.split()
  with contextlib.suppress(ValueError):  # an apostrophe in a comment
    words = shlex.split(text, comments=True)
  ends = (i for i, word in enumerate(words) if word in ("&", "&&", "|", ";", "--") or word.endswith(";"))
  return words[: next(ends, len(words))]


def commands(name: str) -> list[tuple[str, list[str]]]:
  """(module, its words) of every `grpojax ...` and `python -m ...`, but for those shown to fail."""
  found = []
  for snippet in snippets(name):
    match = MARKED.search(snippet)
    if match and "||" not in snippet:
      program, word = match[1].rsplit(" ", 1)
      if program == "grpojax":
        assert word in COMMANDS, f"{name}: grpojax has no command {word}"
        word = COMMANDS[word][0]
      found.append((word, words_of(match[2])))
  return found


def flags_of(module: str) -> set[str]:
  """Flags that a program's own files spell, and those of the rails that it runs on."""
  spec = importlib.util.find_spec(module)
  folders = spec.submodule_search_locations  # of a package, whose __main__.py is the program
  files = sorted(Path(folders[0]).glob("*.py")) if folders else [Path(spec.origin)]
  text = "".join(file.read_text() for file in files)
  for word, rails in (("commandline", "config/commandline.py"), ("study", "tools/study/command.py")):
    text += (ROOT / "grpojax" / rails).read_text() if word in text else ""
  return {a or b for a, b in re.findall(r'"--([\w-]+)"|DEFINE_\w+\(\s*"(\w+)"', text)}


@each_page
def test_commands_exist_with_their_flags(name):
  for module, words in commands(name):
    if module in MADE_UP:
      continue
    assert importlib.util.find_spec(module), f"{name}: there is no module {module}"
    if not module.startswith(("grpojax", "experiments", "benchmarks")):
      continue
    named = {word[2:].partition("=")[0] for word in words if word.startswith("--")}
    named = {flag for flag in named if not flag.startswith("config.")}
    assert named <= flags_of(module), f"{name}: {module} has no flag {named - flags_of(module)}"


@each_page
def test_configs_and_overrides_parse(name):
  for snippet in snippets(name):
    if "||" in snippet or "KEY" in snippet or "key=value" in snippet:
      continue
    found = [word for word in words_of(snippet.lstrip(". ")) if re.match(r"--config(=|\.\w+(\.\w+)*=)", word)]
    recipes = [word for word in found if word.startswith("--config=")]
    overrides = [word for word in found if word not in recipes]
    if any(word.startswith(tuple(f"--config={path}" for path in WRITTEN)) for word in recipes):
      recipes = []
    if any("..." in word or "NAME" in word or "=FILE" in word for word in recipes):
      recipes = []
    assert not found or parses(recipes, overrides), f"{name}: {snippet.strip()}"


def parses(recipes: list[str], overrides: list[str]) -> bool:
  """Whether a config takes the flags: the one that is named, or else some scale of base.py."""
  for recipe in recipes or ("--config=configs/base.py", "--config=configs/base.py:local"):
    with contextlib.suppress(ValueError):
      commandline.config_of([recipe.replace("=configs", f"={ROOT}/configs"), *overrides])
      return True
  return False


@each_page
def test_links_lead_somewhere(name):
  page = ROOT / name
  text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
  for target in re.findall(r"\]\(([^)\s]+)\)", text):
    if "://" in target:
      parts = urlparse(target)
      assert parts.scheme in ("http", "https") and "." in parts.netloc, f"{name}: {target}"
      continue
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if file.suffix == ".rst" and file.parent == ROOT / "docs" / "api":
      assert (ROOT / "grpojax" / file.stem).exists(), f"{name}: {target} is made from no folder"
      continue
    assert file.exists(), f"{name}: there is no {target}"
    assert not anchor or anchor in anchors(file), f"{name}: there is no heading {target}"


def anchors(page: Path) -> set[str]:
  """Headings as GitHub and MyST make them into anchors."""
  headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
  plain = (re.sub(r"[`*]|\[|\]\([^)]*\)", "", heading).strip().lower() for heading in headings)
  return {re.sub(r"[^\w -]", "", heading).replace(" ", "-") for heading in plain}


PATH = re.compile(r"(?<![\w/.])(?:grpojax|tests|configs|experiments|benchmarks|docs|launch)/[\w/.-]*\w/?")


@each_page
def test_paths_exist(name):
  missing = {path for path in PATH.findall((ROOT / name).read_text()) if not (ROOT / path).exists()}
  assert not missing, f"{name}: {', '.join(sorted(missing))}"


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
