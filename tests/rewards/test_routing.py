"""Rules on some rows and a reward model on the others: who is asked, what is summed, what is reported."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
from model_folders import classifier

from grpojax import rewards, train
from grpojax.config import check
from grpojax.data import pipeline
from grpojax.recipes import grpo
from grpojax.rewards import routing
from grpojax.rollout import groups, metrics
from grpojax.runtime import metrics as records
from grpojax.types import Groups, Rollout, Scored

RULE = dict(fn="rules:integer_answer", marker="#", only={"task": "sum"})
ROWS = [dict(task="sum", answer="3"), dict(task="chat"), dict(task="both", answer="3")]
TEXTS = [["#3", "#4"], ["hello", "hm"], ["#3", "hello"]]


def length(samples):
  """Is a reward model, of which nobody asks about a sum."""
  assert samples and all(sample.example["task"] != "sum" for sample in samples)
  return [None if sample.text == "hm" else len(sample.text) / 10 for sample in samples]


def by_group(group, accuracy):
  return accuracy


def slots(accuracy=("sum", "both"), model=("chat", "both")):
  return dict(
    accuracy=RULE | dict(only={"task": accuracy}),
    model=dict(fn=f"{__name__}:length", weight=0.5, only={"task": model}),
  )


def graded():
  lengths = np.full((3, 2), 2)
  return rewards.score(
    rewards.build(slots()), rewards.samples(ROWS, TEXTS, lengths, np.ones((3, 2), bool))
  )


def test_a_reward_counts_where_it_is_asked_and_abstaining_is_another_thing():
  found = graded()
  np.testing.assert_array_equal(found.valid, [[True, True], [True, False], [True, True]])
  np.testing.assert_allclose(found.reward, [[1, 0], [0.25, 0], [1 + 0.1, 0.25]])
  np.testing.assert_array_equal(found.accuracy, [[1, 0], [np.nan, np.nan], [1, 0]])
  np.testing.assert_allclose(found.parts["model"], [[np.nan, np.nan], [0.5, 0], [0.2, 0.5]])
  assert found.counts["rewards/model/abstained"] == 1 and found.counts["rewards/accuracy/abstained"] == 0


def test_metrics_are_of_completions_that_were_asked():
  found = graded()
  rollout = Rollout(
    np.zeros((3, 2, 4), np.int32), np.full((3, 2), 4), np.ones((3, 2), bool), *np.zeros((2, 3, 2, 4))
  )
  scored = Scored(found.reward, found.accuracy, found.valid, found.parts, {})
  step = Groups(SimpleNamespace(id=np.arange(3)), rollout, scored)
  for said, name in (metrics.describe(step), ""), (metrics.describe_drawn(step), "drawn/"):
    assert said[f"{name}accuracy"] == 0.5
    assert said[f"{name}rewards/model/mean"] == pytest.approx((0.5 + 0.2 + 0.5) / 3)
    assert said[f"{name}reward"] == pytest.approx((1 + 0 + 0.25 + 1.1 + 0.25) / 5)
  outcomes = groups.outcomes_of([step])
  assert outcomes.right.tolist() == [1, 0, 1] and outcomes.count.tolist() == [2, 0, 2]
  assert metrics.contrast(outcomes)["prompts/all_wrong"] == 0
  assert groups.mixed(scored).tolist() == [True, False, True]


def test_a_row_needs_the_fields_of_who_is_asked_on_it():
  built = rewards.build(slots())
  assert built.needs(ROWS[0]) == ("answer",) and built.needs(ROWS[1]) == ()
  assert routing.asks({"kind": ("a",)}, {"meta": '{"kind": "a"}'})
  assert not routing.asks({"kind": ("a",)}, {"meta": ""})


def test_an_evaluation_asks_what_has_a_verdict_and_says_what_it_leaves_out():
  split = pipeline.Split("test", ROWS, [np.arange(n + 1) for n in range(3)], np.array([4, 5, 6]), 9, 0)
  built = rewards.build(slots())
  kept = pipeline.graded(split, built.has_verdict)
  assert kept.ids.tolist() == [4, 6] and [len(prompt) for prompt in kept.prompts] == [1, 3]
  assert kept.notes == ("1 questions have no verdict and are not asked (config.reward.accuracy.only)",)
  with pytest.raises(ValueError, match="leaves no row of split 'test' a verdict"):
    pipeline.graded(split, rewards.build(slots(accuracy=("else",))).has_verdict)


@pytest.mark.parametrize(
  ("changed", "sentence"),
  [
    (dict(accuracy=("sum",)), None),
    (dict(accuracy=("sum",), model=("both",)), "1 questions of the training data have no reward, the first"),
    (dict(model=("chats",)), r"config\.reward\.model\.only = .* names no row of the training data"),
  ],
)
def test_every_row_has_a_reward_and_every_reward_a_row(changed, sentence):
  built = rewards.build(slots(**changed))
  rows, only = [row | dict(question="?") for row in ROWS], {one.name: one.only for one in built.all}
  with pytest.raises(ValueError, match=sentence) if sentence else contextlib.nullcontext():
    routing.check_rows(only, rows)


@pytest.mark.parametrize(
  ("changed", "sentence"),
  [
    (dict(accuracy=RULE | dict(only="sum")), r"config\.reward\.accuracy\.only = 'sum' must be a dict"),
    (dict(accuracy=RULE | dict(only={"task": []})), r"only\.task = \[\] must be a text, or several"),
    (dict(accuracy=RULE | dict(only={"task": [1]})), r"only\.task = \[1\] must be a text, or several"),
    (
      dict(accuracy=RULE, group=dict(fn=f"{__name__}:by_group")),
      r"config\.reward\.group sees accuracy, which not all rows have",
    ),
  ],
)
def test_what_cannot_be_routed_is_refused_by_name(changed, sentence):
  with pytest.raises(ValueError, match=sentence):
    rewards.build(changed)


@pytest.mark.parametrize(
  ("changes", "key"),
  [
    ({"dynamic_sampling.enabled": True}, "dynamic_sampling.enabled"),
    ({"difficulty.kind": "ema"}, "difficulty.kind"),
    ({"objective.select": {"mixed": {"fn": "mixed_groups"}}}, "objective.select"),
    ({"objective.advantage.fn": "gtpo"}, "objective.advantage"),
  ],
)
def test_what_goes_by_verdicts_is_refused_where_rows_have_none(changes, key):
  c = grpo.get_config("tiny")
  c.update_from_flattened_dict(changes)
  routing.check(c)
  c.reward.accuracy.only = {"task": "expression"}
  with pytest.raises(ValueError, match=rf"config\.{key} goes by a verdict on every row"):
    check.check(c, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """A reward model, with the toys' tokenizer."""
  return str(classifier("sequence", tmp_path_factory.mktemp("scores") / "sequence"))


@pytest.mark.slow
def test_a_run_asks_rules_where_they_are_and_a_reward_model_where_not(cache, tmp_path, folder):
  c = grpo.get_config("tiny")
  c.update(cache_dir=str(cache), verbose=False, steps=1)
  c.mesh.data = 1
  job = train.prepare(c, tmp_path / "look")
  others = sorted({row["task"] for row in job.data.train.records} - {"expression"})
  c.reward.accuracy.only = {"task": "expression"}
  c.reward.model = dict(fn="learned:score", path=folder, only={"task": others})
  train.run(train.prepare(c, tmp_path / "run"))
  (step,) = (record for record in records.read(tmp_path / "run") if record["kind"] == "train")
  asked = (tmp_path / "run" / "completions.jsonl").read_text()
  assert np.isfinite(step["loss"]) and step["rewards/model/failed"] == 0 and step["rows/invalid"] == 0
  assert "NaN" not in asked and '"parts"' in asked
  assert step["rewards/model/mean"] != 0
