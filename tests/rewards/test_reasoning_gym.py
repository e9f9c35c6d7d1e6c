"""The library's verifiers as rewards: its own numbers, answers not found, and answers that are programs."""

import inspect
import json
import re
import sys

import numpy as np
import pytest
from ml_collections import ConfigDict

from grpojax import rewards
from grpojax.data import procedural_worker
from grpojax.data.local import generators

REWARDS = ConfigDict(dict(accuracy=dict(fn="reasoning_gym:verdict"), part=dict(fn="reasoning_gym:score")))
NAMES = [name for name in procedural_worker.DATASETS if name != "composite"]


def rows(generator, n=1, seed=7, **knobs):
  drawn = procedural_worker.rows_of(generator, knobs, seed, n)
  return [generators.to_example(row | dict(generator=generator, knobs=knobs)) for row in drawn]


def grade(pairs, config=REWARDS):
  """Grades one completion of each row."""
  shape = len(pairs), 1
  examples, texts = zip(*pairs, strict=True)
  groups = rewards.samples(examples, [[text] for text in texts], np.ones(shape, int), np.ones(shape, bool))
  return rewards.score(rewards.build(config), groups)


def boxed(answer):
  return f"so \\boxed{{{answer}}}"


def test_scores_are_the_library_s_own_and_an_answer_that_is_not_found_is_wrong():
  (sums,), (grid,), (several,) = rows("chain_sum"), rows("arc_agi"), rows("propositional_logic")
  other = dict(meta="{}", answer="1")
  graded = grade([
    (sums, boxed(f"+0{sums['answer']}.0") if "-" not in sums["answer"] else boxed(sums["answer"])),
    (sums, boxed(f"{sums['answer']} sheep")),
    (sums, sums["answer"]),
    (sums, "<think>" + boxed(sums["answer"])),
    (grid, boxed(grid["answer"])),  # compared as tuples
    (several, boxed(json.loads(several["meta"])["entry"]["metadata"]["example_answer"])),  # one of them
    (other, boxed(1)),
  ])  # fmt: skip
  share = len(sums["answer"]) / len(f"{sums['answer']} sheep")
  np.testing.assert_allclose(graded.parts["part"][:, 0], [1, share, 0, 0, 1, 1, 0], atol=1e-6)
  np.testing.assert_array_equal(graded.accuracy[:, 0], [1, 0, 0, 0, 1, 1, 0])
  assert graded.valid[:, 0].tolist() == [True] * 6 + [False]
  assert graded.counts["rewards/accuracy/abstained"] == 1
  found = [rewards.build(REWARDS).answer(text) for text in ("7", "<think>" + boxed(7), boxed(" 7 "))]
  assert found == [None, None, "7"]
  assert several["answer"] == ""


@pytest.mark.parametrize("generator", [*procedural_worker.LITERALS, *procedural_worker.FORMULAS])
def test_an_answer_is_never_run(generator, tmp_path):
  """The verifiers of these generators call eval on it."""
  (row,) = rows(generator)
  meta = json.loads(row["meta"])
  calls = "__import__('pathlib').Path({!r}).touch()", "open({!r}, 'w')", "[open({!r}, 'w') for x in [1]]"
  for attack in calls:
    file = tmp_path / "written"
    value = procedural_worker.score(generator, meta["knobs"], meta["entry"], attack.format(str(file)))
    assert value < 0.1 and not file.exists()
  assert procedural_worker.score(generator, meta["knobs"], meta["entry"], row["answer"]) == 1


def test_the_list_of_verifiers_that_evaluate_is_complete():
  """Looks for the calls in the source of every verifier of the installed version."""
  evaluates = set()
  for name in NAMES:
    make, _ = procedural_worker.DATASETS[name]
    source = inspect.getsource(make.score_answer)
    own = inspect.getsource(sys.modules[make.__module__])
    if re.search(r"\b(eval|exec|sympify|simplify|S)\(", source) or (
      "parse_expr(" in source and "def parse_expr" not in own
    ):
      evaluates.add(name)
  evaluates.discard("number_sorting")  # of its own gold answer
  assert evaluates == {*procedural_worker.LITERALS, *procedural_worker.FORMULAS}


def test_a_formula_that_never_ends_costs_its_row_only():
  (row,) = rows("countdown")
  config = ConfigDict(dict(accuracy=dict(fn="reasoning_gym:verdict", timeout=1.0)))
  graded = grade([(row, boxed("9**9**9**9")), (row, boxed(row["answer"]))], config)
  assert graded.valid[:, 0].tolist() == [False, True] and graded.accuracy[1, 0] == 1
  assert graded.counts["rewards/accuracy/failed"] == 1


def test_illegal_knobs_are_refused():
  for knobs, message in [(dict(form="box"), "one of boxed, answer"), (dict(timeout=0), "above 0")]:
    with pytest.raises(ValueError, match=f"config.reward.accuracy: .*{message}"):
      rewards.build(ConfigDict(dict(accuracy=dict(fn="reasoning_gym:verdict") | knobs)))


@pytest.mark.slow
@pytest.mark.parametrize("generator", sorted(set(NAMES) - {"futoshiki", "knight_swap"}))
def test_every_generator_gives_rows_whose_gold_answer_its_verifier_takes(generator):
  for row in procedural_worker.rows_of(generator, {}, 11, 3):
    assert row["fault"] == ""
    example = generators.to_example(row | dict(generator=generator, knobs={}))
    json.loads(example["meta"])
    for odd in ("", "0", "[]", "{}", "null", "a, b", "x × y", "1/0", "[[1]]", "True"):
      entry = json.loads(json.dumps(row["entry"]))
      assert 0 <= procedural_worker.score(generator, "{}", entry, odd) <= 1
