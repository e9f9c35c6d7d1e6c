"""The text of --help of every program with a --config: flags, recipes, and each key with its comment."""

import ast
import inspect
import io
import shutil
import textwrap
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from absl import flags

from grpojax.config import recipe
from grpojax.recipes import base, games, stages

_NAMES = 26  # columns of a name, at most; a longer one has a line of its own


def text(program: str, doc: str, module: str, folder: Path = recipe.FOLDER) -> str:
  """Returns the help of a program: its module's docstring, its own flags, recipes of `folder`, and keys."""
  rails = __name__.replace(".help", ".commandline")
  found = [flag for name in (module, rails) for flag in flags.FLAGS.get_key_flags_for_module(name)]
  own = {f"--{flag.name}": flag.help for flag in found}
  parts = [
    f"usage: {program} RECIPE [--config.KEY=VALUE ...]\n\n{doc.strip()}",
    section("Flags", own.items()),
    section("Recipes: NAME, NAME:SCALE, or a file of your own", recipe.purposes(folder).items()),
    section("Scales", scales()),
    section("Keys, --config.KEY=VALUE, with what base has", keys()),
  ]
  return "\n\n".join(parts)


def section(title: str, rows: Iterable[tuple[str, str]]) -> str:
  """Formats names and sentences in two columns, as wide as the terminal."""
  columns = min(shutil.get_terminal_size((100, 24)).columns, 120)
  indent = " " * (_NAMES + 4)
  lines = [f"{title}:"]
  for name, said in rows:
    first = f"  {name:{_NAMES}}  "
    if len(name) > _NAMES and said:
      lines.append(f"  {name}")
      first = indent
    lines += textwrap.wrap(said, columns, initial_indent=first, subsequent_indent=indent) or [first.rstrip()]
  return "\n".join(lines)


def scales() -> Iterator[tuple[str, str]]:
  """Yields the scales of base.py and games.py, each with the first sentence about it."""
  own = {name.removeprefix("_"): fn for name, fn in vars(base).items() if name.startswith("_")}
  for name, fn in (own | games.SCALES).items():
    if inspect.isfunction(fn):
      yield name, inspect.getdoc(fn).splitlines()[0]


def keys() -> list[tuple[str, str]]:
  """Returns ("key=default" as its file writes it, its comment) of every key; a section has its name alone."""
  source = "".join(map(inspect.getsource, (base, stages)))
  comments, found = _comments(source), {}
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Assign) and (key := ast.unparse(node.targets[0])).startswith("c."):
      key, said = key.removeprefix("c."), comments.get(node.end_lineno, "")
      if key not in found and key != "scale":
        found[key] = node.lineno, [(f"{key}{default}", said) for default in _defaults(node.value)]
  return [row for _, rows in sorted(found.values()) for row in rows]


def _defaults(value: ast.expr) -> list[str]:
  """Returns what follows a key: "=0.2"; "" of a section; ".fn='token'" of a slot and of each of its knobs."""
  if isinstance(value, ast.Call):
    return [f".{knob.arg}={ast.unparse(knob.value)}" for knob in value.keywords] or [""]
  return [f"={ast.unparse(value)}"]


def _comments(source: str) -> dict[int, str]:
  """Returns the comments by line, those that go on in lines of their own in one."""
  found, last = {}, 0
  for token in tokenize.generate_tokens(io.StringIO(source).readline):
    if token.type == tokenize.COMMENT:
      said, line = token.string.lstrip("# "), token.start[0]
      alone = token.line.strip().startswith("#")
      if alone and last and line == last[1] + 1:
        found[last[0]] += f" {said}"
        last = last[0], line
      else:
        found[line] = said
        last = line, line
  return found
