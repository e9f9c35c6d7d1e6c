"""grpojax sweep --config=gspo --sweep=epsilon_high [--seeds=5 ...]

Any recipe, once with each of the overrides that the sweep's `get_sweep()` returns, a list of
{"dotted.key.of.the.config": value}.  What follows the file's name after a colon is its argument:
`--sweep=group_size:256`.  Table, figures and report are those of a study.
"""

import importlib.util
from pathlib import Path

from grpojax.config import recipe
from grpojax.tools.study import Figure, Row, Study
from grpojax.tools.study import command as study_command

FIGURES = (
  ("Held-out accuracy", "% of questions", "eval/pass@1"),
  ("Entropy", "nats per token", "entropy"),
  ("Clipped tokens", "% of tokens", "clip_ratio/region_mean"),
  ("Completion length", "tokens", "completions/mean_length"),
)


def study(config: str, sweep: str, name: str = "") -> Study:
  """Returns a study with a row for each override.  Raises ValueError for an empty sweep."""
  rows = tuple(Row(label(changes), config, changes, at=number(changes)) for changes in load(sweep))
  swept = {key for row in rows for key in list(row.changes)[:1]}
  along = len(swept) == 1 and all(row.at is not None for row in rows)
  figures = [Figure(title, unit, {metric: title.lower()}) for title, unit, metric in FIGURES]
  if along:
    figures += [figure._replace(title=f"{figure.title} along the sweep", over="swept") for figure in figures]
  name_of_recipe = Path(config.partition(":")[0]).stem
  key = swept.pop() if along else ""
  return Study(
    name or f"{name_of_recipe}-{Path(sweep.partition(':')[0]).stem}",
    f"{name_of_recipe}: {', '.join(dict.fromkeys(k for row in rows for k in row.changes))}",
    f"{config} with each of the {len(rows)} overrides of {sweep}.",
    rows,
    tuple(figures),
    swept=key,
  )


def load(sweep: str) -> list[dict]:
  """Loads `get_sweep()` of a file, or `get_sweep(argument)` of "file:argument"."""
  path, _, argument = recipe.find(sweep, "--sweep", recipe.SWEEPS).partition(":")
  spec = importlib.util.spec_from_file_location("grpojax_sweep", path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  if not hasattr(module, "get_sweep"):
    raise ValueError(f"--sweep={sweep}: {path} has no function get_sweep().")
  try:
    found = list(module.get_sweep(argument) if argument else module.get_sweep())
  except Exception as error:
    raise ValueError(f"--sweep={sweep}: get_sweep() raised {type(error).__name__}: {error}.") from error
  if not found or not all(isinstance(changes, dict) for changes in found):
    raise ValueError(f"--sweep={sweep}: get_sweep() returns {found!r}, and must return a list of dicts.")
  return found


def label(changes: dict) -> str:
  """Formats {"objective.surrogate.high": 0.28} as "high=0.28"."""
  return ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in changes.items())


def number(changes: dict) -> float | None:
  """Returns the first of the values, the sweep's axis, if it is a number."""
  value = next(iter(changes.values()), None)
  return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def command() -> None:
  """Reads the command line and runs the sweep."""
  parser = study_command.parser("grpojax sweep")
  parser.add_argument("--config", required=True, help="recipe, e.g. gspo, gspo:tiny or my/recipe.py")
  parser.add_argument("--sweep", required=True, help="e.g. epsilon_high, group_size:256 or my/sweep.py")
  args, extra = parser.parse_known_args()
  made = study(args.config, args.sweep)
  study_command.main("grpojax sweep", made, args, extra, f"runs/{made.name}")

