"""Who may import whom: one table for all folders.  An import beyond the table needs a reason."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "grpojax"
PARTS = ("types", "runtime", "data", "models", "objective", "rewards", "rollout", "learner")
# What each folder or file of grpojax/ may import.  A line names only lines above it: there is no circle.
ALLOWED = {
  "types": set(),
  "recipes": set(),  # configs/, by a link
  "runtime": set(),  # knows no model, no reward and no objective
  "data": {"runtime", "types"},
  "models": {"runtime"},
  "objective": {"types"},
  "rewards": {"data", "models", "runtime"},
  "rollout": {"data", "models", "objective", "rewards", "runtime", "types"},
  "learner": {"models", "objective", "runtime", "types"},
  "config": {"learner", "models", "objective", "recipes", "rewards", "rollout", "runtime"},
  "train": {*PARTS, "config"},
  "main": {"config", "runtime", "train"},
  "tools": {*PARTS, "config", "recipes", "train"},
  "__main__": {"runtime"},  # names the modules of its commands and imports them when they are called
}
# What grpojax/rollout/envs/ may import, of the package and of libraries: it runs in processes without jax.
ENVS = {"grpojax.rewards", "grpojax.rollout.anchors", "grpojax.rollout.envs"}
ENVS_LIBRARIES = {"gymnasium", "numpy", "openenv", "tensorflow_datasets", "textarena"}
MOST = 14  # entries of the package


def part(path: Path) -> str:
  """grpojax/objective/ratio.py -> objective; grpojax/types.py -> types."""
  return path.relative_to(ROOT).with_suffix("").parts[0]


def names(path: Path) -> set[str]:
  """All that a file imports, wherever in it, by full names."""
  found = set()
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      found |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      found |= {f"{node.module}.{alias.name}" for alias in node.names}
      assert node.level == 0, f"{path}: relative imports hide who knows whom"
  return found


def imports(path: Path) -> set[str]:
  """The parts of grpojax that a file imports, wherever in it."""
  return {name.split(".")[1] for name in names(path) if name.startswith("grpojax.")} - {part(path)}


FILES = {path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"}
FILES = sorted(FILES | set((ROOT / "recipes").rglob("*.py")))  # rglob follows no link below it


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_what_its_folder_may(path):
  assert imports(path) <= ALLOWED[part(path)]


def test_environments_are_plain_python():
  for path in (ROOT / "rollout" / "envs").glob("*.py"):
    for name in names(path):
      first = name.partition(".")[0]
      if first == "grpojax":
        assert any(f"{name}.".startswith(f"{part}.") for part in ENVS), f"{path.name} imports {name}"
      else:
        assert first in ENVS_LIBRARIES | sys.stdlib_module_names, f"{path.name} imports {name}"


def test_the_table_names_every_part_once_and_runs_one_way():
  assert {part(path) for path in FILES} == set(ALLOWED)
  assert len(ALLOWED) <= MOST
  above = set()
  for name, may in ALLOWED.items():
    assert may <= above, f"{name} would import what is above it"
    above.add(name)


def test_a_folder_earns_its_place_by_two_files():
  """Beside its __init__.py, or by what else belongs to it: a page's template, a folder below."""
  folders = {path.parent for path in FILES if path.parent != ROOT}
  assert all(len([x for x in folder.iterdir() if x.name != "__pycache__"]) > 2 for folder in folders)


def test_only_the_learner_differentiates():
  """`jax.grad` outside the learner is for a metric of the objective, never for an update."""
  users = {part(path) for path in FILES if "value_and_grad(" in path.read_text()}
  assert users == {"learner"}


def test_nobody_imports_what_ties_its_process_to_the_parent():
  assert not [path for path in FILES if any("forkserver_preload" in name for name in names(path))]


def test_files_stay_short():
  long = {str(path.relative_to(ROOT)): n for path in FILES if (n := len(path.read_text().splitlines())) > 400}
  assert not long


def test_no_flag_is_defined_twice():
  """absl has one table of flags for a process, and the pages of the API import every command into one."""
  nodes = [node for path in FILES for node in ast.walk(ast.parse(path.read_text()))]
  calls = [node for node in nodes if isinstance(node, ast.Call)]
  calls = [call for call in calls if ast.unparse(call.func).startswith("flags.DEFINE_")]
  alone = [call for call in calls if "allow_override" not in [keyword.arg for keyword in call.keywords]]
  found = sorted(call.args[0].value for call in alone)
  assert "programs" in found and len(found) == len(set(found)), found
