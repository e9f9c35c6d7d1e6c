"""Commands, flags, links and paths on the pages exist.  Addresses elsewhere are not asked for."""

import contextlib
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlparse

from docs_pages import MADE_UP, ROOT, each_page, parses, snippets

from grpojax.__main__ import COMMANDS

WRITTEN = ("runs/", "dppo_config.py", "my.py")  # configs that a page has the reader write
MARKED = re.compile(r"(?<![\w/.-])(?<!from )(grpojax [a-z]+|python -m [\w.]+)(.*)")


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
    words = [word.rstrip(":") for word in words_of(snippet.lstrip(". "))]  # before what came of it
    found = [word for word in words if re.match(r"--config(=|\.\w+(\.\w+)*=)", word)]
    recipes = [word for word in found if word.startswith("--config=")]
    overrides = [word for word in found if word not in recipes]
    if any(word.startswith(tuple(f"--config={path}" for path in WRITTEN)) for word in recipes):
      recipes = []
    if any("..." in word or "NAME" in word or "=FILE" in word for word in recipes):
      recipes = []
    assert not found or parses(recipes, overrides), f"{name}: {snippet.strip()}"


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


def test_the_site_has_every_committed_report_where_its_frame_looks(tmp_path):
  results = ROOT / "docs" / "results"
  framed = re.findall(r'<iframe .*src="([^"]+)"', (results / "reports.md").read_text())
  assert sorted(framed) == sorted(str(path.relative_to(results)) for path in results.glob("*/report.html"))
  script = "import pathlib, runpy, sys; runpy.run_path('docs/conf.py')"
  script += "['copy_reports'](pathlib.Path(sys.argv[1]))"
  subprocess.run([sys.executable, "-c", script, tmp_path], cwd=ROOT, check=True)
  for frame in framed:
    copy = tmp_path / "results" / frame
    assert "<title>" in copy.read_text()[:2000] and copy.stat().st_size < 1_500_000


def anchors(page: Path) -> set[str]:
  """Headings as GitHub and MyST make them into anchors."""
  headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
  plain = (re.sub(r"[`*]|\[|\]\([^)]*\)", "", heading).strip().lower() for heading in headings)
  return {re.sub(r"[^\w -]", "", heading).replace(" ", "-") for heading in plain}


PATH = re.compile(r"(?<![\w/.])(?:grpojax|tests|configs|experiments|benchmarks|docs|launch)/[\w/.-]*\w/?")
FILE = re.compile(r"(?<![\w./:-])[\w./-]*/[\w./-]*\w\.(?:py|md|png|sh|yaml|html)\b")
THEIRS = ("runs/", "exported/", "my.", "gs://", "/", "joschu.net/")  # paths of a reader, and an address


@each_page
def test_paths_exist(name):
  text = (ROOT / name).read_text()
  missing = {path for path in PATH.findall(text) if not (ROOT / path).exists()}
  at = (ROOT, ROOT / "grpojax", ROOT / "tests", (ROOT / name).parent)
  files = {path for path in FILE.findall(text) if not path.startswith(THEIRS)}
  missing |= {path for path in files if not any((folder / path).exists() for folder in at)}
  assert not missing, f"{name}: {', '.join(sorted(missing))}"
