"""Best of k by a process reward model: the command's curve, from its steps by themselves and all subsets."""

import itertools
import json
from types import SimpleNamespace

import data_toys
import numpy as np
import pytest
from model_folders import classifier, mesh
from test_evaluate_benchmark import tiny

from grpojax import models
from grpojax.models import hf
from grpojax.rewards import learned
from grpojax.tools.evaluate import command

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>\n"
SEPARATOR, LONGEST = "e", 512  # of steps, as a policy that knows nothing writes few lines; columns


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """A token classifier of transformers with the toys' tokenizer."""
  return classifier("token", tmp_path_factory.mktemp("scores") / "prm")


def worst_step(folder):
  """(question, text) -> the least chance of a good step, in float64: each is read at what closes it."""
  model = models.from_spec(models.scores_from_folder(folder, learned.TOKEN))
  decoder, tokenizer = model.bind(hf.load(folder, model, mesh())), data_toys.tokenizer()

  def score(question, text):
    steps = text.split(SEPARATOR)
    ends = [len(SEPARATOR.join(steps[: i + 1])) for i, step in enumerate(steps) if step.strip()]
    if not ends:
      return 0.0
    marked = text[: ends[-1]] + SEPARATOR
    whole = CHAT.format(question, marked)
    tokens = tokenizer(whole)["input_ids"]
    row = np.pad(np.int32(tokens), (0, LONGEST - len(tokens)))[None]  # which nothing before it sees
    logits = np.float64(decoder.scores(decoder(row, np.zeros(1, np.int32)))[0])
    start = whole.rindex(marked)
    at = [len(tokenizer(whole[: start + end + len(SEPARATOR)])["input_ids"]) - 1 for end in ends]
    return min(1 / (1 + np.exp(logits[at, 0] - logits[at, 1])))

  return score


@pytest.mark.slow
def test_the_best_of_k_by_a_process_reward_model_is_the_mean_over_all_subsets(
  cache, tmp_path, folder, monkeypatch
):
  knobs = dict(path=str(folder), separator=SEPARATOR, max_tokens=LONGEST)
  prm = dict(fn="shaping:process", scorer="grpojax.rewards.learned:steps", how="min", knobs=knobs)
  config = tiny(cache, **{"reward.steps": prm, "eval.samples": 6})
  flags = dict(CHECKPOINT="", SUITE=["test"], OUT=str(tmp_path), LIMIT=8, CURVES=True, BEST_OF="steps")
  for name, value in flags.items():
    monkeypatch.setattr(command, name, SimpleNamespace(value=value))
  for name, value in dict(BEFORE=None, BUDGETS=[], WAITS=0, WAIT="").items():
    monkeypatch.setattr(command, name, SimpleNamespace(value=value))
  asked = command.prepare(config)
  command.show_curves(asked, [command.answer(one) for one in asked])

  items = [json.loads(line) for line in (tmp_path / "items.jsonl").read_text().splitlines()]
  score, expected, several = worst_step(folder), np.zeros(6), 0
  for item in items:
    scores = [sample["score"] for sample in item["samples"]]
    by_itself = [score(item["question"], sample["text"]) for sample in item["samples"]]
    np.testing.assert_allclose(scores, by_itself, atol=1e-4)
    right = np.array([sample["right"] is True for sample in item["samples"]], float)
    several += sum(sample["text"].count(SEPARATOR) > 0 for sample in item["samples"])
    for k in range(1, 7):
      best = [max(of, key=scores.__getitem__) for of in itertools.combinations(range(6), k)]
      expected[k - 1] += right[best].mean() / len(items)
  assert several and len(items) == 8
  suite = json.loads((tmp_path / "curves.json").read_text())["suites"]["test"]
  levels = {name: levels["after"]["value"] for name, levels in suite["curves"].items()}
  assert list(levels) == ["pass@k", "maj@k", "best of k by steps"] and suite["no_score"] == 0
  np.testing.assert_allclose(levels["best of k by steps"], expected, atol=1e-12)
  assert np.all(np.array(levels["pass@k"]) > expected - 1e-9)
  assert np.ptp(expected) > 0.05 and "best of 4 by steps" in (tmp_path / "curves.html").read_text()
