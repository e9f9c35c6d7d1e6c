"""The policy as judge: what it is asked, what is a score, how far it agrees; what a judge learns from."""

import json

import pytest

from grpojax.recipes import base, stages
from grpojax.rewards import judged
from grpojax.tools.pipeline import judge, pairing, sampling
from grpojax.tools.pipeline.stages import Stage

C = base.get_config("tiny").judge


def said(*stated):
  """Judgements of one answer; a number is what the verifier has read of each, None where it found no form."""
  return [dict(text=f"Score: {one}", answer=one) for one in stated]


def test_a_score_is_the_mean_of_the_judgements_that_are_of_the_form():
  of = {"a": said("5", "2", None), "b": said("6", "-1"), "c": said("0")}
  scores, counts = judge.score(C, {("q", text): judgements for text, judgements in of.items()})
  assert scores == {("q", "a"): 3.5, ("q", "c"): 0.0}
  assert counts == dict(judgements=6, no_form=3)


def test_a_judge_that_never_answers_in_the_form_ends_in_one_sentence():
  with pytest.raises(ValueError) as error:
    judge.score(C, {("q", "a"): said("6", None), ("q", "b"): said("-1")})
  assert str(error.value) == (
    "none of 3 judgements has a score from 0 to 5 behind 'Score:', and the first is 'Score: 6'; let an sft"
    " stage before it learn the form (sample.rows = 'judgements'), or change config.judge.rubric, .marker or"
    " .max_tokens."
  )


def test_the_rubric_is_filled_once_whatever_braces_the_texts_have():
  record = dict(question="2{answer}?", history=json.dumps([dict(role="user", content="Be brief.")]))
  asked = judged.ask("Q {question} A {answer} R?", record, "{question}")
  assert asked == "Q Be brief.\n\n2{answer}? A {question} R?"
  assert judged.verdict("Score: ", 5) == "Score: 5"


@pytest.mark.parametrize("scale", ["mini", "small", "local", "pocket"])
def test_the_rubric_of_every_scale_has_its_places(scale):
  found = base.get_config(scale).judge
  judged.check_form(found.rubric, found.marker)
  assert "{answer}" in stages.RUBRIC
  with pytest.raises(ValueError, match=r"config.judge.rubric needs \{question\} and \{answer\} in it, once"):
    judged.check_form("{question}?", "x", "config.judge.")
  with pytest.raises(ValueError, match=r"config\.judge\.marker is empty"):
    judged.check_form("{question}{answer}", " ", "config.judge.")


def answer(text, right, ended=True):
  return dict(text=text, right=right, ended=ended, length=len(text))


def item(name, *samples):
  correct = sum(one["right"] is True for one in samples)
  return dict(id=name, correct=correct, n=len(samples), samples=list(samples))


def test_agreement_is_over_pairs_of_a_right_and_a_wrong_answer_of_one_question():
  one = item("q", answer("a", True), answer("b", False), answer("c", False), answer("d", None))
  two = item("p", answer("a", False), answer("b", False))
  scores = {("q", "a"): 3.0, ("q", "b"): 1.0, ("q", "c"): 3.0, ("q", "d"): 9.0, ("p", "a"): 5.0}
  assert judge.agreement([one, two], scores) == dict(agreement=0.75)  # one over, one tie
  assert judge.agreement([two], scores) == {}
  assert "75 % of the pairs" in judge.sentence(dict(judgements=1, no_form=0, overlong=0, agreement=0.75))


def stage(**sample):
  c = base.get_config("tiny")
  c.sample.update(sample)
  return Stage("judge1", "sample", "base", (), c)


RECORDS = {name: dict(question=f"{name}?") for name in "qp"}


def test_pairs_by_the_judge_are_its_best_and_worst_whatever_the_verifier_says():
  cut = answer("d", True, ended=False)
  one = item("q", answer("a", True), answer("bbb", False), answer("cc", False), cut)
  scores = {("q", "a"): 1.0, ("q", "bbb"): 4.0, ("q", "cc"): 4.0}
  (row,), counts, _ = sampling.ROWS_OF["pairs"](stage(rows="pairs", by="judge"), RECORDS, [one], scores)
  assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == ("bbb", "a")
  assert (counts["cut"], counts["paired"], counts["unpaired"]) == (1, 2, 1)
  assert counts["length_correlation"] == pytest.approx(3 / 12**0.5)  # of (-2, 1, 1) and (-1, 1, 0)
  assert pairing.best_and_worst([one], lambda *_: None)[1]["no_verdict"] == 3


def test_a_judge_learns_as_many_right_verdicts_as_wrong_ones_beside_right_answers():
  one = item("q", answer("a", True), answer("b", False), answer("c", True))
  two = item("p", answer("e", True))
  rows, counts, words = sampling.ROWS_OF["judgements"](stage(keep=1), RECORDS, [one, two], {})
  said_by = [[m["content"] for m in row["messages"]] for row in rows]
  assert said_by == [
    ["q?", "a"], ["p?", "e"], ["q?\na\nright?", "Score: 5"], ["q?\nb\nright?", "Score: 0"],
  ]  # fmt: skip
  assert counts["judgements"] == 2 and words.endswith("; 2 judgements")
  assert sampling.ROWS_OF["judgements"](stage(keep=1), RECORDS, [two], {})[0] == []
