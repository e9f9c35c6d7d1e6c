"""Rewards against stored cases, against tables made by hand, and against rewards that misbehave."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpojax import rewards
from grpojax.rewards import rules, shaping

CASES = json.loads(Path(__file__).parents[1].joinpath("data").joinpath("reward_cases.json").read_text())


def sample(text="", *, answer="72", length=0, ended=True):
  return rewards.Sample(text, {"answer": answer}, length, ended)


def case(name):
  found = CASES[name]
  return found["knobs"], found["inputs"], found["expected"]


# The text, and the integer that it answers by the marker "#".
ANSWERS = [
  ("7*8=56\n#72", "72"),
  ("#72.", "72"),
  ("#72.0", "72"),
  ("#72.00", "72"),
  ("#72.5", None),
  ("# 72", "72"),
  ("#\n72\n", "72"),
  ("#072", "72"),
  ("#000", "0"),
  ("#-3", "-3"),
  ("#\u22123", "-3"),
  ("#-0", "0"),
  ("#+72", "72"),
  ("#1,234", "1234"),
  ("#12,34", None),
  ("#72, I think", "72"),
  ("#72 figs", "72"),
  ("(#72)", "72"),
  ("**#72**", "72"),
  ("<answer>#72</answer>", "72"),
  ("#$72", "72"),
  ("$#72$", "72"),
  ("#72!?", "72"),
  ("#72-8", None),
  ("#72x", None),
  ("#72=72", None),
  ("#1 and #72", "72"),
  ("#72 and #1", "1"),
  ("#72\n#", None),
  ("#72\n#seven", None),
  ("####72", "72"),
  ("72", None),
  ("", None),
  ("#", None),
  ("#" + "9" * 5000, "9" * 5000),
  ("#\u0667\u0662", None),  # Arabic digits
]


@pytest.mark.parametrize(("text", "answer"), ANSWERS)
def test_extract_reads_the_integer_behind_the_last_marker(text, answer):
  assert rules.extract(text, "#") == answer
  right = rules.integer_answer(sample(text, answer=answer or "72"), marker="#")
  assert right == (answer is not None)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.text(st.characters(exclude_characters="#")))
def test_only_the_right_integer_is_right(truth, given_answer, before):
  right = rules.integer_answer(sample(f"{before}#{given_answer}", answer=str(truth)), marker="#")
  assert right == float(truth == given_answer)


@pytest.mark.parametrize("marker", ["#### ", "Answer:", "\\boxed{"])
def test_other_markers(marker):
  text = f"So 5 is {marker}72" + ("}" if marker.endswith("{") else "")
  assert rules.extract(text, marker) == "72"
  assert rules.extract(text, "Result:") is None


@pytest.mark.parametrize("truth", ["", "seven", "7.5", "x=7", None])
def test_without_a_truth_it_abstains(truth):
  assert rules.integer_answer(sample("#7", answer=truth), marker="#") is None


@pytest.mark.parametrize("truth", ["072", "72.0", "1,072", 72])
def test_the_truth_is_read_as_the_answer_is(truth):
  text = "#" + str(truth).replace(",", "")
  assert rules.integer_answer(sample(text, answer=truth), marker="#") == 1


def test_arithmetic_steps_are_checked_one_by_one():
  text = "7+5=12;hm, again: 7+5=13;12*6=72;72-80=8;1.5+1=2;3=3;9-9=0\n#0"
  steps = rules.arithmetic_steps(text)
  assert [score for score, _ in steps] == [1, 0, 1, 0, 1]
  assert [text[:end].rpartition("=")[2] for _, end in steps] == ["12", "13", "72", "8", "0"]
  assert rules.arithmetic_steps("no steps") == []


@pytest.mark.parametrize("name", ["soft_overlong_20480_4096", "soft_overlong_small"])
def test_soft_overlong_is_the_stored_table(name):
  knobs, inputs, expected = case(name)
  knobs = dict(max_tokens=knobs["L_max"], cache=knobs["L_cache"])
  penalty = [shaping.soft_overlong(sample(length=n), **knobs) for n in inputs["lengths"]]
  np.testing.assert_allclose(penalty, expected["penalty"], rtol=1e-12)


def test_soft_overlong_counts_tokens_not_characters():
  assert shaping.soft_overlong(sample("x" * 1000, length=6), max_tokens=10, cache=4) == 0


def test_r1_format_is_the_stored_table():
  _, inputs, expected = case("r1_zero_format_reward")
  form = [shaping.r1_format(sample(text)) for text in inputs["completions"]]
  assert form == expected["format_reward"]
  two_answers = "<think>a</think><answer>4</answer><answer>5</answer>"
  assert shaping.r1_format(sample(two_answers)) == 0
  assert shaping.r1_format(sample("<think>a\nb</think>\n<answer>4\n</answer>")) == 1


def test_language_consistency_is_the_stored_share():
  _, inputs, expected = case("r1_language_consistency")
  target, total = inputs["cot_words_target"], inputs["cot_words_total"]
  thought = "thus 1+1=2 " * target + "\u0442\u043e\u0433\u0434\u0430, " * (total - target)
  text = f"<think>{thought}</think><answer>\u0434\u0430</answer>"
  consistent = shaping.language_consistency(sample(text))
  assert consistent == expected["language_reward"]
  assert inputs["accuracy"] + consistent == expected["total_sum"]
  russian = shaping.language_consistency(sample(text), script="CYRILLIC")
  assert russian == pytest.approx(1 - consistent)


@pytest.mark.parametrize(
  ("text", "share"),
  [
    ("so x is two", 1.0),
    ("so \u56e0\u4e3a two", 0.5),  # each ideograph is a word
    ("<think>so", 1.0),  # cut by the budget
    ("<think>so</think>\u56e0\u4e3a", 1.0),  # only the thought counts
    ("2+2=4", 0.0),  # no words, no credit
    ("", 0.0),
  ],
)
def test_language_consistency_by_hand(text, share):
  assert shaping.language_consistency(sample(text)) == share


def test_step_scores_are_aggregated_as_stored():
  _, inputs, expected = case("prm_aggregation")
  expected["product"] = expected.pop("prod")
  got = {how: shaping.aggregate_steps(inputs["step_scores"], how=how) for how in expected}
  assert got == pytest.approx(expected)


def test_process_scores_the_steps_of_the_text():
  text = "7+5=12;12*6=72;72-8=60;60-1=59\n#59"
  scorer = "grpojax.rewards.rules:arithmetic_steps"
  samples = [sample(text), sample("no steps")]
  got = {how: shaping.process(samples, scorer=scorer, how=how) for how in ("mean", "last", "min")}
  assert got == {"mean": [0.75, 0], "last": [1, 0], "min": [0, 0]}


def test_a_scorer_of_steps_that_fails_on_one_text_costs_that_one():
  good, bad = shaping.process([sample("long enough"), sample("")], scorer=f"{__name__}:last_letter")
  assert good == ord("h") and isinstance(bad, IndexError)
  with pytest.raises(ValueError, match="got an unexpected keyword argument 'to'"):
    shaping.load_scorer(f"{__name__}:last_letter", dict(to=1))


def last_letter(text):
  return [(float(ord(text[-1])), len(text))]


def overlong(lengths, accuracy, easy=0.7):
  group = [sample(length=n) for n in lengths]
  return shaping.group_relative_overlong(group, accuracy, easy=easy)


def test_group_relative_overlong_is_the_stored_table():
  knobs, inputs, expected = case("group_relative_overlong")
  penalty = overlong(inputs["lengths"], inputs["correct"], knobs["gamma1"])
  np.testing.assert_allclose(penalty, expected["penalty"], rtol=1e-12)


@pytest.mark.parametrize(
  ("lengths", "accuracy", "penalty"),
  [
    # medium, 3 of 5: L = max((1 + 11) / 2, 21 / 5) = 6 over all five
    ([1, 2, 9, 3, 6], [1, 1, 1, 0, 0], [0, 0, -0.5 * (9 - 5) / 5, 0, 0]),
    ([10, 10, 100, 10, 10], [1, 1, 1, 1, 0], [0, 0, -0.5 * (100 - 55) / 55, 0, 0]),
    # easy, mean 325 above midrange ... twice the limit costs a half and no more
    ([1, 1, 1, 1000, 1], [1, 1, 1, 1, 1], [0, 0, 0, -0.5 * (1000 - 500.5) / 500.5, 0]),
    ([1, 9, 9, 9], [1, 1, 1, 1], [0, -0.5 * (9 - 7) / 7, -0.5 * (9 - 7) / 7, -0.5 * (9 - 7) / 7]),
    ([99, 1], [1, 0], [0, 0]),  # half right: not medium
    ([99, 1], [0, 0], [0, 0]),
  ],
)
def test_group_relative_overlong_by_hand(lengths, accuracy, penalty):
  np.testing.assert_allclose(overlong(lengths, accuracy), penalty, rtol=1e-12)


def accuracy_only(**others):
  return dict(accuracy=dict(fn="rules:integer_answer", marker="#"), **others)


def score(config, completions, *, answers=("72", "5"), length=4):
  shape = (len(completions), len(completions[0]))
  examples = [{"answer": answer} for answer in answers[: shape[0]]]
  lengths, ended = np.full(shape, length), np.ones(shape, bool)
  return rewards.score(rewards.build(config), rewards.samples(examples, completions, lengths, ended))


def test_the_reward_is_the_weighted_sum_and_accuracy_stays_untouched():
  config = accuracy_only(
    length=dict(fn="shaping:soft_overlong", max_tokens=10, cache=4, weight=0.5),
    steps=dict(fn="shaping:process", scorer="grpojax.rewards.rules:arithmetic_steps", weight=2.0),
  )
  config["accuracy"]["weight"] = 3.0
  graded = score(config, [["8*9=72\n#72", "#72"], ["#72", "1+1=2"]], length=8)
  np.testing.assert_array_equal(graded.accuracy, [[1, 1], [0, 0]])
  np.testing.assert_array_equal(graded.parts["length"], np.full((2, 2), -0.5))
  np.testing.assert_array_equal(graded.parts["steps"], [[1, 0], [0, 1]])
  np.testing.assert_array_equal(graded.reward, [[4.75, 2.75], [-0.25, 1.75]])
  assert graded.valid.all() and graded.first_error == ""
  assert set(graded.counts.values()) == {0} and len(graded.counts) == 6
  assert graded.reward.dtype == graded.accuracy.dtype == np.float32


def test_a_group_reward_sees_its_own_group_and_its_accuracy():
  built = rewards.build(
    dict(long=dict(fn="shaping:group_relative_overlong", easy=0.7)) | accuracy_only()
  )
  lengths = np.array([[100, 200, 450, 900], [450, 200, 100, 900]])
  texts = [["#1", "#1", "#1", "#2"], ["#1", "#2", "#2", "#2"]]
  graded = rewards.score(built, rewards.samples([{"answer": 1}] * 2, texts, lengths, np.ones((2, 4), bool)))
  expected = [CASES["group_relative_overlong"]["expected"]["penalty"], [0] * 4]
  np.testing.assert_allclose(graded.parts["long"], expected, rtol=1e-6)


def test_an_unknown_truth_excludes_the_row():
  graded = score(accuracy_only(), [["#72", "#1"], ["#5", "#5"]], answers=("72", "many"))
  np.testing.assert_array_equal(graded.valid, [[True, True], [False, False]])
  assert graded.counts["rewards/accuracy/abstained"] == 2
  assert graded.counts["rewards/accuracy/failed"] == 0 and graded.first_error == ""


class Timeout(BaseException):
  """What some verifiers raise: `except Exception` does not see it."""


def crooked(sample):
  outcomes = dict(
    none=None,
    nan=float("nan"),
    inf=-float("inf"),
    text="0.5",
    huge=10**5000,
    big=1e39,
    good=np.float32(0.5),
    true=np.bool_(True),
  )
  if sample.text == "raise":
    raise ZeroDivisionError("by me")
  if sample.text == "timeout":
    raise Timeout
  return outcomes[sample.text]


def crooked_group(group, accuracy):
  if group[0].text == "raise":
    raise ZeroDivisionError
  return dict(short=[1.0], number=1.0, ragged=[[1], [1, 2]], good=[0.25, None])[group[0].text]


@pytest.mark.parametrize("outcome", ["nan", "inf", "text", "huge", "big", "raise", "timeout"])
def test_a_failing_reward_costs_its_row_and_nothing_else(outcome):
  config = accuracy_only(
    odd=dict(fn=f"{__name__}:crooked"),
    length=dict(fn="shaping:soft_overlong", max_tokens=10, cache=4),
  )
  graded = score(config, [["good", outcome], ["none", "true"]], length=7)
  np.testing.assert_array_equal(graded.valid, [[True, False], [False, True]])
  np.testing.assert_array_equal(graded.reward, [[0.25, 0], [0, 0.75]])
  np.testing.assert_array_equal(graded.parts["odd"], [[0.5, 0], [0, 1]])
  assert graded.counts["rewards/odd/failed"] == 1
  assert graded.counts["rewards/odd/abstained"] == 1
  assert graded.counts["rewards/accuracy/failed"] == 0
  assert graded.first_error.startswith("Reward 'odd' ")
  assert len(graded.first_error) < 300


@pytest.mark.parametrize("outcome", ["short", "number", "ragged", "raise"])
def test_a_failing_group_reward_costs_its_group(outcome):
  config = accuracy_only(odd=dict(fn=f"{__name__}:crooked_group"))
  graded = score(config, [[outcome, ""], ["good", ""]])
  np.testing.assert_array_equal(graded.valid, [[False, False], [True, False]])
  assert graded.counts["rewards/odd/failed"] == 2 and graded.counts["rewards/odd/abstained"] == 1


def interrupt(sample):
  raise KeyboardInterrupt


def test_ctrl_c_is_no_failed_reward():
  with pytest.raises(KeyboardInterrupt):
    score(accuracy_only(odd=dict(fn=f"{__name__}:interrupt")), [["#72"]])


def test_what_a_reward_reads_and_compares_is_declared():
  built = rewards.build(accuracy_only(odd=dict(fn=f"{__name__}:crooked")))
  assert built.needs({}) == ("answer",)
  assert built.answer("so\n#072.") == "72" and built.answer("so") is None


def fussy(sample, other, *, knob):
  return 0.0


@pytest.mark.parametrize(
  ("slot", "message"),
  [
    (dict(fn="rules:integer"), "x.fn = 'rules:integer', but .*rules.py .* are only integer_answer"),
    (dict(fn="rules:extract", marker="#"), "are only integer_answer"),
    (dict(fn="shaping:_words"), "are only soft_overlong, group_relative_overlong, r1_format"),
    (dict(fn="rulez:integer_answer"), "neither grpojax/rewards/rulez.py nor a module 'rulez'"),
    (dict(fn="no.such:thing"), "nor a module 'no.such'"),
    (dict(fn="integer_answer"), "must be 'file:function'"),
    (dict(marker="#"), "must be 'file:function'"),
    (dict(fn="rules:integer_answer"), "x: integer_answer needs marker"),
    (dict(fn="rules:integer_answer", marker=""), "marker = '' must be a text"),
    (dict(fn="rules:integer_answer", marker="#", mark=1), "no mark; it takes marker, weight"),
    (dict(fn="rules:integer_answer", marker="#", weight="1"), "x.weight = '1' must be a finite"),
    (dict(fn="shaping:soft_overlong", max_tokens=8, cache=9), "cache = 9 must be in 1..max_tokens"),
    (dict(fn="shaping:soft_overlong", max_tokens=8, cache=0), "cache = 0 must be"),
    (dict(fn="shaping:group_relative_overlong", easy=0.5), "easy = 0.5"),
    (dict(fn="shaping:process", scorer="rules:nothing"), "scorer = 'rules:nothing' must be"),
    (dict(fn="shaping:process", scorer="json:loads", how="max"), "mean, last, min, product"),
    (dict(fn=f"{__name__}:fussy", knob=1), "fussy cannot be called as a reward"),
  ],
)
def test_a_bad_slot_is_one_sentence_that_names_the_key(slot, message):
  with pytest.raises(ValueError, match=message) as error:
    rewards.build(accuracy_only(x=slot))
  assert str(error.value).startswith("config.reward.x")


def test_accuracy_is_required_and_of_one_completion():
  with pytest.raises(ValueError, match="accuracy is missing"):
    rewards.build(dict(length=dict(fn="shaping:r1_format")))
  with pytest.raises(ValueError, match="accuracy is of one completion"):
    rewards.build(dict(accuracy=dict(fn="shaping:group_relative_overlong", easy=0.7)))
