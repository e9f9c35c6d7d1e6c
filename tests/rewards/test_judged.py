"""A judge's score of a completion: by hand from logits, and what is refused before it is asked."""

import jax
import numpy as np
import pytest

from grpojax import models, rewards
from grpojax.data import text
from grpojax.recipes import base
from grpojax.recipes.pipelines import self_rewarding_grpo
from grpojax.rewards import judged
from grpojax.tools import export
from grpojax.train import setup

RUBRIC = "{question} {answer} right?"
RIGHT = dict(fn="rules:integer_answer", marker="#")
SLOT = dict(fn="judged:score", rubric=RUBRIC, batch=2)


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
  """(folder, model, parameters): sharper than random, so that scores differ."""
  folder = tmp_path_factory.mktemp("judge") / "policy"
  model = models.build(base.get_config("tiny").model, len(text.load_tokenizer()))
  params = model.init(jax.random.key(0))
  params = params | {"embedding": params["embedding"] * 10}
  export.write_folder(params, model.spec, text.EMBEDDED, folder, 10**9, "float32")
  return folder, model, params


def graded(folder, texts, **knobs):
  slots = dict(accuracy=RIGHT, judge=SLOT | dict(path=str(folder)) | knobs)
  examples = [dict(question="2+3=?", answer="5")]
  ones = np.ones((1, len(texts)), int)
  return rewards.score(rewards.build(slots), rewards.samples(examples, [texts], ones, ones > 0))


def by_hand(model, params, answer, marker="Score:", most=5):
  tokenizer = text.load_tokenizer()
  prompt = f"<|user|>2+3=? {answer} right?<|assistant|>{marker} "
  tokens = np.array([tokenizer.encode(prompt, add_special_tokens=False)], np.int32)
  bound = model.bind(params)
  logits = np.asarray(bound.logits(bound(tokens, np.zeros(1, np.int32)))[0, -1], np.float64)
  numbers = [tokenizer.convert_tokens_to_ids(str(n)) for n in range(most + 1)]
  odds = np.exp(logits[numbers])
  return (odds / odds.sum() * np.arange(most + 1)).sum() / most


def test_a_score_is_the_mean_of_the_numbers_by_their_odds_whatever_the_batch(judge):
  folder, model, params = judge
  texts = ["2+3=5\n#5", "#6", "{question}", "9" * 70]
  found = graded(folder, texts)
  expected = [by_hand(model, params, answer) for answer in texts]
  assert found.valid.all() and np.ptp(expected) > 0.01
  np.testing.assert_allclose(found.parts["judge"][0], expected, atol=1e-5)
  other = graded(folder, texts[:1], marker="#", most=9).parts["judge"][0, 0]
  assert other == pytest.approx(by_hand(model, params, texts[0], "#", 9), abs=1e-5)


def test_a_rubric_that_is_too_long_has_no_score(judge):
  found = graded(judge[0], ["#5", "9" * 70], max_tokens=50)
  assert found.valid.tolist() == [[True, False]] and "over max_tokens = 50" in found.first_error


@pytest.mark.parametrize(
  ("knobs", "words"),
  [
    (
      dict(rubric="{question}?"),
      "config.reward.judge: rubric needs {question} and {answer} in it, once each.",
    ),
    (
      dict(marker=" "),
      "config.reward.judge: marker is empty; set the text that the score stands behind: 'Score:'.",
    ),
    (dict(most=0), "most = 0 must be at least 1"),
    (dict(most=10), "the numbers 0..10 are not one token each behind 'Score:'; lower most"),
    (dict(path="/nowhere"), "'/nowhere' holds no tokenizer_config.json"),
  ],
)
def test_a_judge_that_cannot_score_is_refused(judge, knobs, words):
  slots = dict(accuracy=RIGHT, judge=SLOT | dict(path=str(judge[0])) | knobs)
  with pytest.raises(ValueError) as error:
    rewards.build(slots)
  assert words in str(error.value)


def test_init_is_the_policy_that_the_run_starts_from(judge):
  config = self_rewarding_grpo.get_config("tiny")
  (stage, _) = (stage for stage in config.stages if stage.kind == "rl")
  config.reward.update(judge=stage.reward.judge)
  with pytest.raises(ValueError, match=r"config\.reward\.judge\.path = 'init' is the policy in"):
    setup.build_scorer(config)
  config.model = dict(path=str(judge[0]))
  assert setup.reward_slots(config).judge.path == str(judge[0]) and config.reward.judge.path == judged.INIT


def test_a_slot_that_is_none_is_refused_in_its_own_sentence():
  config = self_rewarding_grpo.get_config("tiny")
  config.reward.update(extra=5)
  with pytest.raises(ValueError, match=r"config\.reward\.extra is 5, but must be a dict of fn"):
    setup.build_scorer(config)
