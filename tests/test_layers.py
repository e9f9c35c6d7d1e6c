"""Who may import whom.  The table is the design; an import beyond it needs a reason here."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "grpojax"
FREE = {"main", "train"}  # they know everything; nobody but main imports train
ALLOWED = {
  "batch": set(),
  "commandline": {"hosts", "legal"},
  "legal": {"sharding"},
  "hosts": set(),
  "objective": {"batch"},
  "rewards": set(),
  "agents": set(),
  "models": {"sharding"},
  "sharding": set(),
  "logprobs": {"models", "sharding"},
  "reward_models": {"data", "models", "sharding"},
}


def part(path: Path) -> str:
  """grpojax/objective/ratio.py -> objective; grpojax/types.py -> batch."""
  return path.relative_to(ROOT).with_suffix("").parts[0]


def imports(path: Path) -> set[str]:
  """The parts of grpojax that a file imports, wherever in it."""
  found = set()
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
      names = [f"{node.module}.{alias.name}" for alias in node.names]
      assert node.level == 0, f"{path}: relative imports hide who knows whom"
    else:
      continue
    found |= {name.split(".")[1] for name in names if name.startswith("grpojax.")}
  return found - {part(path)}


FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_what_its_layer_may(path):
  mine, known = part(path), imports(path)
  assert "main" not in known
  assert "train" not in known or mine == "main"
  if mine in ALLOWED:
    assert known <= ALLOWED[mine]


def test_the_table_speaks_of_parts_that_exist():
  parts = {part(path) for path in FILES}
  assert {*ALLOWED, *FREE} <= parts


def test_models_know_nothing_of_the_sampler_and_only_the_learner_differentiates():
  """`jax.grad` outside the learner is for a metric of the objective, never for an update."""
  users = {part(path) for path in FILES if "value_and_grad(" in path.read_text()}
  assert users == {"learner"}
  assert all("sampler" not in imports(path) for path in FILES if part(path) == "models")
