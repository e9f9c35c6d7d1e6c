"""Curves over k: against enumeration, paired by question, where they cross, and on the pages."""

import html
import itertools
import json
import re
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from grpojax.recipes import base
from grpojax.rollout import estimators
from grpojax.runtime import metrics, report
from grpojax.runtime.report import over_k
from grpojax.tools.evaluate import command, curves


def item(number, verdicts, answers=None, scores=None):
  """An item of so many samples; a right answer is "1", a wrong one by its place, unless they are given."""
  answers = answers or ["1" if right else f"no {i}" for i, right in enumerate(verdicts)]
  samples = [
    dict(text="", answer=a, right=r, length=3, ended=True) for a, r in zip(answers, verdicts, strict=True)
  ]
  for sample, score in zip(samples, scores or [], strict=False):
    sample["score"] = score
  return dict(suite="test", id=str(number), question="?", answer="1", n=len(samples), samples=samples)


def some(seed=0, P=40, n=6):
  rng = np.random.default_rng(seed)
  chances = rng.random(P)
  return [item(i, [bool(x) for x in rng.random(n) < chance]) for i, chance in enumerate(chances)]


def test_curves_are_the_means_over_all_draws_and_their_intervals_the_bootstraps():
  answered = some()
  found = curves.of_suite(answered, None)
  assert (found["questions"], found["samples"], found["no_score"]) == (40, 6, 0) and "crossing" not in found
  right = [[sample["right"] for sample in item["samples"]] for item in answered]
  answers = [[sample["answer"] for sample in item["samples"]] for item in answered]
  for k in range(1, 7):
    drawn = list(itertools.combinations(range(6), k))
    passed = [np.mean([any(r[i] for i in of) for of in drawn]) for r in right]
    level = {name: levels["after"]["value"][k - 1] for name, levels in found["curves"].items()}
    assert level["pass@k"] == pytest.approx(np.mean(passed))
    voted = [
      np.mean([estimators.majority([a[i] for i in of], [r[i] for i in of]) for of in drawn])
      for a, r in zip(answers, right, strict=True)
    ]
    assert level["maj@k"] == pytest.approx(np.mean(voted))
    low, high = estimators.bootstrap(np.array(passed)[:, None])
    levels = found["curves"]["pass@k"]["after"]
    np.testing.assert_allclose([levels["low"][k - 1], levels["high"][k - 1]], [low[0], high[0]], atol=1e-12)


def test_two_policies_are_paired_by_question():
  """One that is right once more on each question: the change has no spread, although questions have."""
  before = [item(i, [j < i % 4 for j in range(5)]) for i in range(40)]
  after = [item(i, [j <= i % 4 for j in range(5)]) for i in range(40)]
  levels = curves.of_suite(after, before)["curves"]["pass@k"]
  for key in ("value", "low", "high"):
    assert levels["change"][key][0] == pytest.approx(0.2)
  assert levels["after"]["high"][0] - levels["after"]["low"][0] > 0.05
  np.testing.assert_allclose(
    np.subtract(levels["after"]["value"], levels["before"]["value"]), levels["change"]["value"], atol=1e-12
  )
  with pytest.raises(AssertionError, match="the same questions"):
    curves.of_suite(after, before[::-1])


def test_a_policy_against_itself_changes_nothing_and_crosses_nowhere():
  found = curves.of_suite(some(), some())
  assert not np.any([found["curves"]["pass@k"]["change"][key] for key in ("value", "low", "high")])
  assert found["crossing"]["pass@k"] == dict(k=None, low=None, high=None, share=0.0)
  assert "before and after are equal at k = 1" in " ".join(over_k._sentences(found))


def test_where_the_curves_cross():
  """After: half of the questions always.  Before: each question once in six, k / 6, ahead from k = 4."""
  after = [item(i, [i % 2 == 0] * 6) for i in range(400)]
  before = [item(i, [j == 0 for j in range(6)]) for i in range(400)]
  found = curves.of_suite(after, before)
  cross = found["crossing"]["pass@k"]
  assert (cross["k"], cross["share"]) == (4, 1.0) and cross["low"] in (3, 4) and cross["high"] == 4
  said = " ".join(over_k._sentences(found))
  assert f"after is ahead at k = 1, before from k = 4 on [{cross['low']}, 4]" in said
  change = np.array([[1, 0.5, -0.5], [-1, -1, -1], [-1, 0, 2], [0, 1, -1]], float)
  assert curves.crossing(change).tolist() == [3, np.inf, 3, np.inf]


def test_a_score_picks_and_who_has_none_is_picked_last_and_counted():
  one = item(0, [True, False, False], scores=[0.1, 0.9, None])
  two = item(1, [False, True, False], scores=[None, None, None])
  found = curves.of_suite([one, two], None, best_of="rm")
  np.testing.assert_allclose(found["curves"]["best of k by rm"]["after"]["value"], [1 / 3, 1 / 3, 1 / 6])
  assert found["no_score"] == 4
  shown = over_k.shown(dict(checkpoint="a", before=None, suites={"test": found}))["suites"][0]
  assert "best of 2 by rm" in [row[0] for row in shown["rows"]]
  assert "4 samples have no score" in " ".join(shown["sentences"])


def told(before):
  suite = curves.of_suite(some(1), before)
  named = dict(command="grpojax evaluate", checkpoint="<b>runs/x</b>", before=before and "start")
  return named | dict(suites={"<i>": suite})


@pytest.mark.parametrize("before", [None, some(2)], ids=["alone", "compared"])
def test_the_page_has_every_k_of_the_table_and_whole_drawings(tmp_path, before):
  found = told(before)
  page = curves.write(tmp_path, found).read_text()
  assert json.loads((tmp_path / "curves.json").read_text()) == found
  assert "<b>runs" not in page and "<i>:" not in page and "<script" not in page
  assert [name for name in ("pass@1", "pass@6", "maj@4") if name in page] == ["pass@1", "pass@6", "maj@4"]
  drawings = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
  assert len(drawings) == (1 if before is None else 2)
  for svg in drawings:
    ElementTree.fromstring(svg)
  (table, sentences), *others = curves.tables(found)
  assert len(table.columns) == (2 if before is None else 4) and sentences and not others


def test_a_runs_report_shows_the_curves_of_its_newest_step(tmp_path):
  with metrics.Writer(tmp_path) as writer:
    writer.write("train", 1, {"reward": 0.5})
  assert "Curves over k" not in report.write(tmp_path).read_text()
  for step in (9, 10):
    (tmp_path / f"eval/step_{step}").mkdir(parents=True)
    curves.write(tmp_path / f"eval/step_{step}", told(None) | dict(checkpoint=f"after step {step}"))
  page = html.unescape(report.write(tmp_path).read_text())
  assert "Curves over k" in page and "after step 10" in page and "after step 9" not in page


@pytest.mark.parametrize(
  ("flags", "sentence"),
  [
    (dict(BEFORE=""), "--before, --best_of, --budgets and --waits are of the curves; give --curves too"),
    (dict(BEST_OF="rm"), "give --curves too"),
    (dict(CURVES=True, n=1), r"config.eval.samples = 1: --curves needs 2 to 1000 of each question"),
    (dict(CURVES=True, n=1001), "config.eval.samples = 1001"),
  ],
)
def test_flags_that_make_no_curve_are_refused(monkeypatch, flags, sentence):
  config = base.get_config("tiny")
  config.eval.samples = flags.pop("n", 4)
  for name, value in (dict(CURVES=False, BEFORE=None, BEST_OF="", BUDGETS=[], WAITS=0) | flags).items():
    monkeypatch.setattr(command, name, SimpleNamespace(value=value))
  with pytest.raises(ValueError, match=sentence):
    command.prepare(config)
