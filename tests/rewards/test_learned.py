"""Learned rewards against transformers, and from a folder to the numbers that a run trains on."""

from functools import partial

import data_toys
import jax
import numpy as np
import pytest
from model_folders import SCORES, classifier, mesh

from grpojax import models, rewards
from grpojax.models import hf
from grpojax.rewards import learned, process
from grpojax.runtime import sharding

TASKS = dict(sequence=learned.SEQUENCE, token=learned.TOKEN)
SIZES = dict(batch=8, max_tokens=512)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """kind -> a folder with the toys' tokenizer in it."""
  root = tmp_path_factory.mktemp("scores")
  made = {kind: str(classifier(kind, root / kind)) for kind in TASKS}
  return made.__getitem__


@pytest.mark.parametrize("kind", TASKS)
def test_scores_are_those_of_transformers(kind):
  """Padded on the left, on the right, and not at all; cut over four devices."""
  expected, devices = np.load(SCORES / kind / "expected.npz"), mesh(fsdp=4)
  model = models.from_spec(models.scores_from_folder(SCORES / kind, TASKS[kind]))
  params = hf.load(SCORES / kind, model, devices)
  score = jax.jit(lambda params, tokens, first: model.bind(params).scores(model.bind(params)(tokens, first)))
  tokens, first = (np.concatenate([x, x[:1]]) for x in (expected["tokens"], expected["first"]))  # 4 rows
  ours = score(params, *jax.device_put((tokens, first), sharding.batch_sharding(devices)))
  for row, (first, last) in enumerate(zip(expected["first"], expected["last"], strict=True)):
    theirs = expected["scores"][row]
    mine = ours[row, last - 1] if kind == "sequence" else ours[row, first:last]
    np.testing.assert_allclose(mine, theirs if kind == "sequence" else theirs[first:last], atol=1e-4)


def sample(text, question="What is 7 + 5?", **example):
  return rewards.Sample(text, dict(question=question, **example), len(text), True)


def by_hand(folder, kind, whole):
  """[tokens, labels] of one conversation, without batches, buckets or padding."""
  model = models.from_spec(models.scores_from_folder(folder, TASKS[kind]))
  params = hf.load(folder, model, mesh())
  tokens = np.asarray([data_toys.tokenizer()(whole)["input_ids"]], np.int32)
  scores = lambda decoder: decoder.scores(decoder(tokens, np.zeros(1, np.int32)))
  return np.asarray(jax.jit(lambda params: scores(model.bind(params)))(params))[0]


CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>\n"


def test_a_reward_is_the_score_of_the_conversation_whatever_its_batch(folder):
  """Nine completions of other lengths, in batches of eight and two buckets of columns."""
  texts = ["12", "I think that it is 12.", *("9" * n for n in (1, 2, 3, 4, 5, 6, 60))]
  slot = dict(fn="grpojax.rewards.learned:score", path=folder("sequence"), weight=0.5, **SIZES)
  scorer = rewards.build(dict(accuracy=dict(fn="rules:integer_answer", marker="#"), learned=slot))
  history = '[{"role": "system", "content": "Be brief."}]'
  example = [dict(question="What is 7 + 5?"), dict(question="And 7?", history=history)]
  example = [row | dict(answer="12") for row in example]
  groups = [texts[:8], [texts[8]] * 8]
  graded = rewards.score(scorer, rewards.samples(example, groups, np.full((2, 8), 3), np.ones((2, 8), bool)))
  assert graded.valid.all() and not any(graded.counts.values())
  graded_by_model = graded.parts["learned"]
  by_itself = lambda whole: by_hand(folder("sequence"), "sequence", whole)[-1, 0]
  for i in (1, 7):
    theirs = by_itself(CHAT.format("What is 7 + 5?", texts[i]))
    assert graded_by_model[0, i] == pytest.approx(theirs, abs=1e-4)
  theirs = by_itself("<|im_start|>system\nBe brief.<|im_end|>\n" + CHAT.format("And 7?", texts[8]))
  np.testing.assert_allclose(graded_by_model[1], theirs, atol=1e-4)
  np.testing.assert_allclose(graded.reward, 0.5 * graded_by_model, atol=1e-6)
  assert np.ptp(graded_by_model[0]) > 0.1


def test_a_conversation_that_is_too_long_fails_alone(folder):
  score = partial(learned.score, path=folder("sequence"), **SIZES)
  long, short = score([sample("9" * 500), sample("12")])
  assert isinstance(long, ValueError) and "over max_tokens = 512" in str(long)
  assert short == pytest.approx(score([sample("12")])[0], abs=1e-5)


def test_steps_are_scored_at_their_separators(folder):
  """A blank line is no step; the last step is closed; other text between separators would shift them all."""
  text = "7+5=12\n\n12*6=72\nso 72"
  found, none = learned.steps([sample(text), sample(" \n")], path=folder("token"), **SIZES)
  assert none == []
  assert [text[:end] for _, end in found] == ["7+5=12", "7+5=12\n\n12*6=72", text]
  whole = CHAT.format("What is 7 + 5?", text + "\n")
  logits = by_hand(folder("token"), "token", whole)
  prefix = len(whole[: whole.index(text)].replace("<|im_start|>", "S").replace("<|im_end|>", "E"))
  for score, end in found:  # a token a byte: the separator's is right behind the step
    odds = np.exp(logits[prefix + end])
    assert score == pytest.approx(odds[1] / odds.sum(), abs=1e-4)
  assert len({round(score, 3) for score, _ in found}) == 3


def test_the_steps_of_a_run_and_their_reward(folder):
  knobs = dict(path=folder("token"), separator=";", **SIZES)
  scorer = rewards.load_scorer("grpojax.rewards.learned:steps", knobs)
  tokenizer = data_toys.tokenizer()
  groups = [[sample("1+1=2;2+2=4"), sample("x")]]
  tokens, length = np.zeros((1, 2, 16), np.int32), np.zeros((1, 2), np.int32)
  for g, one in enumerate(groups[0]):
    row = tokenizer(one.text)["input_ids"]
    tokens[0, g, : len(row)], length[0, g] = row, len(row)
  extra, counts = process.score(scorer, tokenizer, groups, tokens, length, 4)
  assert not any(counts.values())
  assert extra["step_end"].tolist() == [[[4, 10, -1, -1], [0, -1, -1, -1]]]
  slot = dict(fn="shaping:process", scorer="grpojax.rewards.learned:steps", how="min", knobs=knobs)
  scorer = rewards.build(dict(accuracy=dict(fn="rules:integer_answer", marker="#"), steps=slot))
  example = [groups[0][0].example | dict(answer="4")]
  completions = rewards.samples(example, [["1+1=2;2+2=4", "x"]], length, np.ones((1, 2), bool))
  graded = rewards.score(scorer, completions)
  worst = np.where(extra["step_end"] >= 0, extra["step_score"], 1).min(-1)
  np.testing.assert_allclose(graded.parts["steps"], worst, atol=1e-5)


@pytest.mark.parametrize(
  ("fn", "kind", "knobs", "sentence"),
  [
    ("score", "token", {}, "what scores here is a model for SequenceClassification"),
    ("steps", "sequence", {}, "what scores here is a model for TokenClassification"),
    ("score", "sequence", dict(label=1), "label = 1, but .* has 1"),
    ("score", "sequence", dict(batch=0), "batch = 0 must be at least 1"),
    ("steps", "token", dict(separator=""), "separator = '' ends no step"),
  ],
)
def test_what_cannot_score_is_refused_by_name(folder, fn, kind, knobs, sentence):
  with pytest.raises(ValueError, match=sentence):
    if fn == "steps":
      rewards.load_scorer("grpojax.rewards.learned:steps", dict(path=folder(kind)) | knobs)
    else:
      slot = dict(fn="grpojax.rewards.learned:score", path=folder(kind), **knobs)
      rewards.build(dict(accuracy=dict(fn="rules:integer_answer", marker="#"), learned=slot))


def test_a_folder_that_is_not_there_is_refused():
  slot = dict(fn="grpojax.rewards.learned:score", path="/nowhere")
  with pytest.raises(ValueError, match=r"config\.reward\.accuracy: /nowhere/config\.json does not exist"):
    rewards.build(dict(accuracy=slot))
