"""Sphinx's settings: `docs/build.sh` builds the site into docs/_build.

Pages are Markdown; those of tutorials/ are notebooks that the build executes.  The API reference is made from
the docstrings of every module that there is.
"""

import ast
import functools
import inspect
import itertools
import os
import pkgutil
import re
import shutil
import sys
import textwrap
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))
os.environ |= {  # of the notebooks, too
  "HOME": str(DOCS / "_build" / "home"),  # nothing is cached, so that the first run is one; then all share it
  "JAX_PLATFORMS": "cpu",
  # A third of the time to compile, for programs that are nearly as fast.
  "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1",
  "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
  "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
  "PYTHONPATH": str(ROOT),
  "COLUMNS": "100",
}

project = "grpojax"
author = "the authors of grpojax"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]

html_theme = "sphinx_book_theme"
html_title = "grpojax"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {"_modules/**": ["navbar-logo.html", "search-button-field.html"]}  # else most of the build
html_theme_options = dict(
  show_toc_level=2,
  home_page_in_toc=True,
  use_download_button=False,
  use_fullscreen_button=False,
  navbar_persistent=[],  # the search is beside the pages
)

nb_execution_mode = "cache"  # by what is in the cells; docs/build.sh begins with an empty cache
nb_execution_cache_path = str(DOCS / "_build" / "executed")
nb_execution_show_tb = True  # of a cell that fails, which is a warning
nb_execution_timeout = 900  # seconds a cell
nb_merge_streams = True

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nitpicky = True

autodoc_mock_imports = ["wandb", "trackio", "mlflow"]  # extras, for a file each of runtime/loggers
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures stay short; the source is a click away
autodoc_preserve_defaults = True
python_display_short_literal_types = True
toc_object_entries = False  # contents name modules: every function, in each page's, is a third of the build


def setup(app):
  """Called by Sphinx."""
  startup = Path(os.environ["HOME"], ".ipython", "profile_default", "startup")
  startup.mkdir(parents=True, exist_ok=True)
  shutil.copy(DOCS / "bash_cells.py", startup)
  app.connect("builder-inited", lambda app: write_api_pages())
  app.connect("build-finished", lambda app, failure: copy_reports(Path(app.outdir)))
  app.parallel = 1  # also with -j: the tutorials go on from the first one's run and cold start
  app.connect("autodoc-process-docstring", as_rst)
  app.connect("autodoc-process-signature", without_fields)
  app.connect("autodoc-skip-member", skip_fields)


def write_api_pages() -> None:
  """Writes api/PART.rst for each folder and file of the package, with a section for each module in it."""
  import grpojax

  for old in (DOCS / "api").glob("*.rst"):
    old.unlink()
  for part in pkgutil.iter_modules(grpojax.__path__, "grpojax."):
    modules = [part.name]
    if part.ispkg:
      folder = [str(Path(ROOT, *part.name.split(".")))]
      modules += sorted(module.name for module in pkgutil.walk_packages(folder, f"{part.name}."))
    sections = [f"{part.name}\n{'=' * 80}\n"]
    for module in modules:
      if module != part.name:
        sections.append(f"{module.removeprefix('grpojax.')}\n{'-' * 80}\n")
      sections.append(f".. automodule:: {module}\n   :members:\n   :ignore-module-all:\n")
    (DOCS / "api" / f"{part.name.rpartition('.')[2].strip('_')}.rst").write_text("\n".join(sections))


def copy_reports(site: Path) -> None:
  """Copies the reports of runs and studies to where the frames of results/reports.md look for them."""
  for report in DOCS.glob("results/*/report.html"):
    place = site / report.relative_to(DOCS)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(report, place)


def as_rst(app, what, name, obj, options, lines) -> None:
  """Rewrites a plain-text docstring, in place, as reStructuredText that reads the same.

  Paragraphs are escaped but for `code`; what is indented is shown as it stands.  Of a record the fields are
  shown as the source has them, with their comments.
  """
  text = "" if lines and lines[0].startswith(f"{getattr(obj, '__name__', '')}(") else "\n".join(lines)
  lines[:] = [out for block in blocks(text.expandtabs()) for out in block]
  if what == "class" and (found := fields(obj)):
    lines += ["", ".. code-block:: python", "", *textwrap.indent(found, "   ").splitlines(), ""]


def blocks(text: str):
  """Yields the paragraphs, bullets and indented parts of a docstring, each as lines of reStructuredText."""
  bullet = False
  for indented, group in itertools.groupby(text.splitlines(), lambda line: line.startswith(" ")):
    group = list(group)
    if indented and bullet:
      yield [f"  {escaped(line.strip())}" for line in group]
    elif indented:
      yield ["", "::", "", *(f"   {line}" for line in group), ""]
    else:
      yield [line if not line else bulleted(line) for line in group]
    bullet = next((line for line in reversed(group) if line), "").startswith("- ") or (indented and bullet)


def bulleted(line: str) -> str:
  """Returns an escaped line of a paragraph; a bullet stays one, and nothing else begins a list."""
  return f"- {escaped(line[2:])}" if line.startswith("- ") else f"\\ {escaped(line)}"


def escaped(line: str) -> str:
  """Returns text in which only `code` is markup; a colon makes no link of "file:argument"."""
  parts = re.split(r"`([^`]+)`", line)
  plain = [re.sub(r"([\\*_|`<>]|(?<=file):)", r"\\\1", part) for part in parts[::2]]
  code = [f"\\ ``{part}``\\ " for part in parts[1::2]]
  return "".join(part for pair in itertools.zip_longest(plain, code, fillvalue="") for part in pair)


@functools.cache
def fields(cls) -> str:
  """Returns the annotated fields of a class with their comments, or ""."""
  try:
    lines = inspect.getsource(cls).splitlines()
  except (OSError, TypeError):
    return ""
  body = ast.parse(textwrap.dedent("\n".join(lines))).body[0].body
  annotated = [node for node in body if isinstance(node, ast.AnnAssign)]
  if not annotated:
    return ""
  first, last = annotated[0].lineno - 1, annotated[-1].end_lineno
  while last < len(lines) and lines[last].lstrip().startswith("#"):
    last += 1
  return textwrap.dedent("\n".join(lines[first:last]))


def without_fields(app, what, name, obj, options, signature, returns):
  """Drops the arguments of a record from its heading: the fields say them."""
  return ("", None) if what == "class" and fields(obj) else None


def skip_fields(app, what, name, obj, skip, options):
  """Leaves out a record's fields one by one: they are shown together."""
  return True if type(obj).__name__ in ("_tuplegetter", "member_descriptor") else None
