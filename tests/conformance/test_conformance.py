"""conformance/: its cases are the stored ones, and its runner tells an equal loss from another."""

import ast
import importlib.util
import json
import sys
from pathlib import Path

import make_conformance
import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "conformance"


def module(name: str):
  """A file of the folder, which is no package."""
  spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
  found = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(found)
  return found


run, example = module("run"), module("example")
STORED = [case for path in (FOLDER / "cases").glob("*.json") for case in json.loads(path.read_text())]
CASES = {case["name"]: case for case in STORED}


def test_the_cases_are_the_stored_ones():
  found = {path.stem: path.read_text() for path in (FOLDER / "cases").glob("*.json")}
  assert found == make_conformance.families()
  assert len(CASES) == 256 and f"# Conformance: {len(CASES)} cases" in (FOLDER / "README.md").read_text()


def test_it_stands_by_itself():
  for path in FOLDER.glob("*.py"):
    nodes = ast.walk(ast.parse(path.read_text()))
    names = {getattr(node, "module", None) or node.names[0].name for node in nodes
             if isinstance(node, ast.Import | ast.ImportFrom)}  # fmt: skip
    assert names - set(sys.stdlib_module_names) <= {"numpy"}, path


def test_the_example_is_equal_wherever_it_answers(monkeypatch, capsys):
  monkeypatch.setitem(sys.modules, "example", example)
  assert run.main("example", []) == 0
  counts = [line.split() for line in capsys.readouterr().out.splitlines()]
  assert sum(int(line[1]) for line in counts) >= 13 and not any(int(line[3]) for line in counts)


@pytest.mark.parametrize(
  "planted, named",
  [
    (lambda case, answer: 1.001 * answer, "dapo_toyB"),  # another denominator
    (lambda case, answer: float("nan"), "dapo_toyB"),  # 0 · inf behind the mask
    (lambda case, answer: (answer, np.asarray(case["expected_grad_logp"]) * 1.01), "dapo_toyA"),
  ],
)
def test_a_loss_that_differs_is_named(planted, named, monkeypatch, capsys):
  broken = type(sys)("broken")
  broken.loss = lambda case: planted(case, example.loss(case))
  monkeypatch.setitem(sys.modules, "broken", broken)
  assert run.main("broken", ["dapo"]) == 1
  assert f"{named} differs by" in capsys.readouterr().out


def test_the_words_of_the_page_are_those_of_the_cases():
  page = (FOLDER / "README.md").read_text()
  for case in CASES.values():
    hyper = case["hyper"]
    words = {hyper["adv"]["kind"], hyper["ratio"], hyper["clip"].get("kind"), hyper["mismatch"]["kind"]}
    words |= {hyper["kl"].get("est"), *(set(hyper) & {"components", "pref", "divergence"})}
    known = {"loo_groupstd", "loo_loostd"}  # of two families; their notes say it
    missing = [word for word in words - known - {None} if word not in page]
    assert not missing, (case["name"], missing)
