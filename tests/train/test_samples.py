"""The tokens that completions.jsonl keeps: which text, which log-prob and which entropy belongs to which."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from grpojax import objective
from grpojax.data import text
from grpojax.recipes import base
from grpojax.train import samples
from grpojax.types import ACTION, OBSERVATION, Groups, Prompts, Rollout, Scored, Turns

TOKENIZER = text.load_tokenizer()
P, G, L, T = 16, 2, 8, 12


@pytest.fixture
def step():
  """(job, groups) of a step; a token's entropy says which token it is."""
  rng = np.random.default_rng(0)
  config = base.get_config("tiny")
  config.rollout.update(prompts=P, group_size=G, max_tokens=T)
  config.data.prompt_budget = L
  length = rng.integers(1, T + 1, (P, G)).astype(np.int32)
  tokens = rng.integers(0, TOKENIZER.vocab_size, (P, G, T)).astype(np.int32)
  prompts = Prompts(
    tokens=rng.integers(0, TOKENIZER.vocab_size, (P, L)).astype(np.int32),
    length=rng.integers(1, L + 1, P).astype(np.int32), id=np.arange(P, dtype=np.int32),
    example=[{"question": str(i), "answer": str(i)} for i in range(P)],
  )  # fmt: skip
  logp, ended = -rng.exponential(size=(P, G, T)).astype(np.float32), np.ones((P, G), bool)
  rollout = Rollout(tokens, length, ended, logp, (tokens / 7).astype(np.float32))
  reward = rng.normal(size=(P, G)).astype(np.float32)
  groups = Groups(prompts, rollout, Scored(reward, reward, ended, {"accuracy": reward}, {}))
  data, built = SimpleNamespace(tokenizer=TOKENIZER), objective.build(config.objective)
  return SimpleNamespace(config=config, data=data, objective=built), groups


def kept(step) -> dict:
  (row,) = samples.on_host(samples.table(*step))
  assert json.loads(json.dumps(row, allow_nan=False)) == row
  return row


def test_each_token_has_its_own_text_log_prob_and_entropy(step):
  row, rollout = kept(step), step[1].rollout
  for i, n in enumerate(rollout.length[0]):
    tokens = rollout.tokens[0, i, :n]
    assert "".join(row["tokens"][i]) == TOKENIZER.decode(tokens) and len(row["tokens"][i]) == n
    np.testing.assert_allclose(row["sampler_logp"][i], rollout.sampler_logp[0, i, :n], atol=5e-4)
    np.testing.assert_allclose(row["entropy"][i], tokens / 7, atol=5e-4)
    assert all(x == round(x, 3) for x in row["sampler_logp"][i] + row["entropy"][i])


def test_what_the_policy_did_not_choose_has_no_numbers(step):
  job, groups = step
  kind = np.full((P, G, T), ACTION, np.int8)
  kind[..., 0] = OBSERVATION
  row = kept((job, groups._replace(rollout=groups.rollout._replace(kind=kind))))
  for each in row["sampler_logp"], row["entropy"]:
    assert all(x[0] is None and None not in x[1:] for x in each)
  assert row["kinds"] == ["o" + "a" * (n - 1) for n in groups.rollout.length[0].tolist()]


def test_a_turn_has_its_reward_and_its_advantage(step):
  """Two turns, of which the second row has played one; the environment pays the first row's last turn."""
  job, groups = step
  index = np.full((P, G, T), -1, np.int32)
  index[..., 0], index[:, 0, 1] = 0, 1
  kind = np.where(index >= 0, ACTION, OBSERVATION).astype(np.int8)
  count = np.broadcast_to(np.int32([2, 1]), (P, G))
  reward = np.zeros((P, G, 2), np.float32)
  reward[:, 0, 1] = 1
  turns = Turns(index, count, reward, np.zeros((P, G, 2), np.int32), reward > 0)
  rollout = groups.rollout._replace(
    length=np.full((P, G), 2, np.int32), kind=kind, turns=turns, ending=np.zeros((P, G), np.int8)
  )
  scored = groups.scored._replace(reward=reward.sum(-1), accuracy=reward.sum(-1))
  advantage = dict(fn="turn_return", std=False)
  job.objective = objective.build(dict(base.get_config("tiny").objective, advantage=advantage))
  row = kept((job, groups._replace(rollout=rollout, scored=scored)))
  told = [[(turn["reward"], turn["valid"], turn["advantage"]) for turn in one] for one in row["turns"]]
  third = pytest.approx(1 / 3, abs=1e-6)
  assert told == [[(0, True, third), (1, False, third)], [(0, True, pytest.approx(-2 / 3, abs=1e-6))]]
  assert row["turns"][0][1]["ending"] == "done" and row["kinds"][1] == "ao" and "turn_advantage" not in row


def test_a_long_group_keeps_its_first_completions(step, monkeypatch):
  length = step[1].rollout.length[0].tolist()
  for most, sizes in (sum(length), length), (sum(length) - 1, length[:1]), (0, length[:1]):
    monkeypatch.setattr(samples, "TOKENS", most)
    row = kept(step)
    assert [len(x) for x in row["tokens"]] == [len(x) for x in row["entropy"]] == sizes
    assert len(row["completions"]) == G
