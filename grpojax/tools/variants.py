"""The recipes and the menu, as tables made from the code itself.

    grpojax variants               # for a terminal
    grpojax variants --markdown    # for a page
"""

import argparse
import importlib
import inspect
import pkgutil

from ml_collections import ConfigDict
from rich import box
from rich.console import Console
from rich.table import Table

import configs
from grpojax.objective.build import LISTS, SLOTS, functions, knobs_of


def recipes() -> list[dict[str, str]]:
  """Returns one row per file of configs/: its choice in each slot."""
  names = [m.name for m in pkgutil.iter_modules(configs.__path__) if not m.ispkg]
  return [_row(name, importlib.import_module(f"configs.{name}").get_config()) for name in names]


def menu() -> list[dict[str, str]]:
  """Returns one row per function of each slot, with its knobs and its docstring's first line."""
  return [
    dict(
      slot=slot,
      function=name,
      knobs=", ".join(_knob(parameter) for parameter in knobs_of(fn).values()),
      what=inspect.getdoc(fn).splitlines()[0],
    )
    for slot in (*SLOTS, *LISTS)
    for name, fn in functions(slot).items()
  ]


def _row(recipe: str, c: ConfigDict) -> dict[str, str]:
  o = c.objective
  rescale = [] if o.rescale.fn == "identity" else [o.rescale]
  rewards = [reward for name, reward in c.reward.items() if name != "accuracy"]
  refill = ["refill"] if c.dynamic_sampling.enabled else []
  cells = dict(
    recipe=[recipe],
    advantage=[o.advantage, *rescale],
    ratio=[o.ratio],
    surrogate=[o.surrogate],
    aggregate=[o.aggregate],
    mismatch=[*o.correct.values(), *o.veto.values()],
    penalty=o.penalty.values(),
    filter=[*o.select.values(), *refill],
    reward=[*rewards, *o.shape.values()],
  )
  return {column: "; ".join(map(_say, cell)) or "–" for column, cell in cells.items()}


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
  escape = lambda cell: cell.replace("|", "\\|")
  return "\n".join("| " + " | ".join(map(escape, line)) + " |" for line in lines)


def command() -> None:
  """Prints both tables."""
  parser = argparse.ArgumentParser(prog="grpojax variants", description=__doc__.splitlines()[0])
  parser.add_argument("--markdown", action="store_true", help="print tables for a page")
  as_page = parser.parse_args().markdown
  for title, rows in (("Recipes", recipes()), ("Menu of the slots", menu())):
    if as_page:
      print(f"## {title}\n\n{markdown(rows)}\n")
      continue
    table = Table(title=title, box=box.SIMPLE)
    for column in rows[0]:
      table.add_column(column, overflow="fold")
    for row in rows:
      table.add_row(*row.values())
    Console().print(table)

