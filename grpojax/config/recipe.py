"""Finds recipes by name or file, and lists them.

`grpojax/recipes` is a link to the repository's `configs/`, and in a wheel a folder: recipes are where people
look for them, and `from grpojax.recipes import base` works wherever the package does.
"""

import ast
import difflib
from pathlib import Path

from ml_collections import ConfigDict

from grpojax.recipes import base

FOLDER = Path(__file__).parents[1] / "recipes"
SWEEPS = FOLDER / "sweeps"
PIPELINES = FOLDER / "pipelines"
NO_RECIPES = ("__init__", "games", "stages")  # files of the folder
# Recipes for one model; their argument is no scale, but another recipe (smollm2:dapo) or a machine
# (qwen_gsm8k:v5e8).
OF_A_MODEL = ("smollm2", "qwen_gsm8k", "gemma_gsm8k")
OF_A_TEACHER = ("distill",)  # which need config.teacher.path
READ_BY = {FOLDER: "grpojax train", PIPELINES: "grpojax pipeline", SWEEPS: "grpojax sweep --sweep"}


def names(folder: Path = FOLDER) -> list[str]:
  """Returns the names of the files of Python in a folder, in alphabetical order."""
  return sorted(file.stem for file in folder.glob("*.py") if file.stem not in NO_RECIPES)


def variants() -> list[str]:
  """Returns the names of the recipes that are variants of the objective, `base` among them, at any scale."""
  return [name for name in names() if name not in OF_A_MODEL + OF_A_TEACHER]


def defaults(scale: str) -> ConfigDict:
  """Returns every key as base.py has it at this scale."""
  return base.get_config(scale)


def find(value: str, flag: str = "--config", folder: Path = FOLDER) -> str:
  """Returns "FILE" or "FILE:ARGUMENT" of a flag's value, whose file is there.

  "gspo" is the package's recipe from any folder, and so is "configs/gspo.py" where the current folder has no
  such file; any other path is the user's own file.  Raises ValueError with the nearest names.
  """
  path, colon, argument = value.partition(":")
  shipped = {name: folder / f"{name}.py" for name in names(folder)}
  if path in shipped:
    return f"{shipped[path]}{colon}{argument}"
  if Path(path).expanduser().is_file():
    return f"{Path(path).expanduser()}{colon}{argument}"
  inside = "/".join(["configs", *folder.relative_to(FOLDER).parts, ""])
  name = path.removeprefix(inside).removesuffix(".py")
  if path == f"{inside}{name}.py" and name in shipped:
    return f"{shipped[name]}{colon}{argument}"
  if Path(path).expanduser().is_dir():
    raise ValueError(
      f"{flag}={value} is a folder, and a recipe is a name or a file; a run's folder is --workdir of training"
      " and --checkpoint of `grpojax evaluate`."
    )
  for other, command in READ_BY.items():
    if other != folder and path in names(other):
      raise ValueError(f"{flag}={value}: {path} is a recipe of `{command}`; here are {', '.join(shipped)}.")
  near = nearest(Path(path).stem, shipped)
  raise ValueError(
    f"{flag}={value}: there is no file {path} and no recipe of that name; "
    + (f"did you mean {' or '.join(near)}?" if near else f"the recipes are {', '.join(shipped)}.")
  )


def nearest(word: str, known) -> list[str]:
  """Returns up to three of the known words that are spelt most like `word`, the nearest first."""
  return difflib.get_close_matches(word.lower(), list(known), n=3, cutoff=0.6)


def purposes(folder: Path = FOLDER) -> dict[str, str]:
  """Returns the name of every recipe -> the first sentence of its file; nothing is imported."""
  docs = {name: ast.get_docstring(ast.parse((folder / f"{name}.py").read_text())) for name in names(folder)}
  return {name: doc.splitlines()[0].partition("  http")[0] for name, doc in docs.items() if doc}
