"""The recipes and the menu, as tables made from the code itself.

    grpojax variants               # for a terminal
    grpojax variants --markdown    # for a page
"""

import argparse
import importlib
import inspect
from collections.abc import Iterable, Iterator

from ml_collections import ConfigDict
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from grpojax.config import recipe
from grpojax.objective.build import MENUS, functions, knobs_of

NONE = "–"  # nothing chosen


def recipes() -> list[dict[str, str]]:
  """Returns one row per file of configs/: its choice in each slot."""
  load = lambda name: importlib.import_module(f"grpojax.recipes.{name}").get_config()
  return [_row(name, load(name)) for name in recipe.variants()]


def menu() -> list[dict[str, str]]:
  """Returns one row per function of each slot, with its knobs and its docstring's first line."""
  return [
    dict(
      slot=slot,
      function=name,
      knobs=", ".join(_knob(parameter) for parameter in knobs_of(fn).values()),
      what=inspect.getdoc(fn).splitlines()[0],
    )
    for slot in MENUS
    for name, fn in functions(slot).items()
  ]


def _row(name: str, c: ConfigDict) -> dict[str, str]:
  o = c.objective
  rescale = [] if o.rescale.fn == "identity" else [o.rescale]
  rewards = [reward for name, reward in c.reward.items() if name != "accuracy"]
  refill = ["refill"] if c.dynamic_sampling.enabled else []
  cells = dict(
    recipe=[name],
    advantage=[o.advantage, *rescale],
    ratio=[o.ratio],
    surrogate=[o.surrogate],
    aggregate=[o.aggregate],
    mismatch=[*o.correct.values(), *o.veto.values(), *o.batch_veto.values()],
    penalty=[*o.penalty.values(), *o.component.values(), *o.preference.values()],
    filter=[*o.select.values(), *refill],
    reward=[*rewards, *o.shape.values()],
  )
  return {column: "; ".join(map(_say, cell)) or NONE for column, cell in cells.items()}


def _say(slot) -> str:
  """Formats ConfigDict(fn="ppo_clip", low=0.2) as "ppo_clip low=0.2"."""
  if isinstance(slot, str):
    return slot
  knobs = [f"{key}={value}" for key, value in slot.items() if key != "fn"]
  return " ".join([slot.fn.split(":")[-1], *knobs])


def _knob(parameter: inspect.Parameter) -> str:
  required = parameter.default is inspect.Parameter.empty
  return parameter.name if required else f"{parameter.name}={parameter.default}"


def markdown(rows: list[dict[str, str]]) -> str:
  """Formats rows as a GitHub table."""
  lines = [list(rows[0]), ["---"] * len(rows[0]), *(row.values() for row in rows)]
  escaped = lambda cell: cell.replace("|", "\\|")
  return "\n".join("| " + " | ".join(map(escaped, line)) + " |" for line in lines)


def brief(rows: list[dict[str, str]]) -> Iterator[tuple[str, str]]:
  """Yields (recipe, its choices): all of base's, and of the others what differs from it."""
  base = next(row for row in rows if row["recipe"] == "base")
  for row in [base, *(row for row in rows if row is not base)]:
    beside = dict.fromkeys(row, NONE) if row is base else base
    chosen = {slot: cell for slot, cell in row.items() if cell != beside[slot]}
    yield chosen.pop("recipe"), "\n".join(f"{slot}: {cell}" for slot, cell in chosen.items())


def command() -> None:
  """Prints both tables, for a page or as narrow as a terminal."""
  parser = argparse.ArgumentParser(prog="grpojax variants", description=__doc__.splitlines()[0])
  parser.add_argument("--markdown", action="store_true", help="print tables for a page")
  if parser.parse_args().markdown:
    for title, rows in (("Recipes", recipes()), ("Menu of the slots", menu())):
      print(f"## {title}\n\n{markdown(rows)}\n")
    return
  what = recipe.purposes()
  show(
    "Recipes: what each sets beside base",
    ((name, f"[dim]{escape(what[name])}[/dim]\n{escape(chosen)}") for name, chosen in brief(recipes())),
  )
  signatures = ((f"{row['slot']}.{row['function']}", row) for row in menu())
  show(
    "Functions of the slots, with their knobs",
    ((name, escape(f"{row['what']}\n{row['knobs']}".strip())) for name, row in signatures),
  )


def show(title: str, rows: Iterable[tuple[str, str]]) -> None:
  """Prints a name and a text a row."""
  table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
  table.add_column(no_wrap=True, style="bold")
  table.add_column()
  for row in rows:
    table.add_row(*row)
  Console().print(table)
