"""Rows of reasoning-gym: right golds, disjoint splits, the same everywhere, and mistakes in one sentence."""

import json
import os
import re
import subprocess
import sys

import data_toys
import pytest
from ml_collections import ConfigDict

from grpojax.config import check
from grpojax.config.schema import DATA_KEYS
from grpojax.data import pipeline, procedural, procedural_worker
from grpojax.data.local import generators
from grpojax.recipes import base

TOKENIZER = data_toys.tokenizer()


def load(folder, **changes):
  keys = base.get_config("local").data
  for key, value in changes.items():
    keys[key] = ConfigDict(value) if isinstance(value, dict) else value
  path = pipeline.prepare(keys, folder, DATA_KEYS)
  needs = lambda _: ("meta",)
  return [pipeline.load_split(keys, path, split, TOKENIZER, needs) for split in ("train", "test")]


def test_one_flag_draws_both_splits_of_a_generator(tmp_path):
  train, test = load(tmp_path, task="reasoning_gym:chain_sum", knobs=dict(max_terms=2), rows=60, held_out=9)
  assert len(train.records) + len(test.records) == 60 - int("repeat" in train.notes[0])
  assert len(test.records) == 6 and test.notes == (
    "held_out: 6 of the training rows, by their questions' hashes; config.data.held_out = 9 is more than a"
    f" tenth of {len(train.records) + 6} questions",
  )
  for record in train.records + test.records:
    left, sign, right = re.search(r"(\d+) ([+-]) (\d+) =$", record["question"]).groups()
    assert int(record["answer"]) == int(left) + int(sign + right)
    assert record["task"] == "reasoning_gym:chain_sum" and json.loads(record["meta"])["generator"]
  asked = [{record["question"] for record in split.records} for split in (train, test)]
  assert not asked[0] & asked[1]


@pytest.fixture
def in_this_process(monkeypatch):
  """Draws without a process of its own, which imports the library anew."""
  monkeypatch.setattr(procedural, "draw", procedural_worker.rows_of)


def test_several_generators_are_sources_and_a_test_source_has_seeds_of_its_own(tmp_path, in_this_process):
  one = dict(task="reasoning_gym:spell_backward", rows=12)
  sums = dict(task="reasoning_gym:chain_sum", rows=12)
  train, test = load(tmp_path, train=dict(words=one, sums=sums), test=dict(words=one))
  assert {r["source"] for r in train.records} == {"words", "sums"} and len(test.records) >= 11
  assert all(r["answer"] == r["question"].split()[-1][::-1] for r in test.records)
  weighed = pipeline.weigh(train, dict(words=3.0, sums=1.0))
  of_words = sum(w for w, r in zip(weighed.weights, train.records, strict=True) if r["source"] == "words")
  assert of_words == pytest.approx(0.75)


def test_rows_with_a_wrong_gold_answer_are_left_out_and_counted(tmp_path, in_this_process):
  knobs = dict(max_digits=1, allow_parentheses=False, operators=["+", "/"])
  train, test = load(tmp_path, task="reasoning_gym:basic_arithmetic", knobs=knobs, rows=120, held_out=5)
  kept = train.records + test.records
  for record in kept:
    exact = eval(record["question"].removeprefix("Calculate ").removesuffix("."))
    assert float(record["answer"]) == pytest.approx(exact)
  malformed = int(re.search(r"(\d+) malformed", train.notes[0]).group(1))
  assert malformed > 30 and "its gold answer" in train.notes[0] and "is not" in train.notes[0]


def test_letters_in_another_case_and_spaces_in_pictures_are_questions_of_their_own(tmp_path):
  rows = [dict(prompt=f"Spell {word}", answer=word[::-1], size=len(word)) for word in ("The", "the", "The")]
  source = data_toys.write(tmp_path / "train.jsonl", rows)
  tests = data_toys.write(tmp_path / "test.jsonl", [dict(prompt="Spell a", answer="a", size=1)])
  train, _ = load(tmp_path / "cache", path=str(source), test_path=str(tests), meta="size, other")
  found = sorted((r["answer"], json.loads(r["meta"])["size"]) for r in train.records)
  assert found == [("ehT", 3), ("eht", 3)]
  picture = dict(fault="", generator="g", knobs={}, entry=dict(question=" x\n x", answer="1"))
  moved = picture | dict(entry=dict(question="x\n  x", answer="1"))
  assert generators.to_example(picture)["uid"] != generators.to_example(moved)["uid"]


WRONG = [
  (dict(task="reasoning_gym:chain"), "config.data.task: reasoning-gym has no generator 'chain'; it has ab,"),
  (dict(task="reasoning_gym:"), "config.data.task = 'reasoning_gym:' must be 'reasoning_gym:GENERATOR'"),
  (dict(knobs=dict(max_term=3)), "config.data.knobs: chain_sum has no knob 'max_term'; it takes min_terms"),
  (dict(knobs=dict(max_terms=1)), r"knobs: chain_sum refuses the knobs .*max_terms must be >= min_terms"),
  (dict(knobs=dict(seed=1)), "has no knob 'seed'"),
  (dict(rows=0), "config.data.rows = 0 must be a whole number from 1 to 1,000,000"),
  (dict(version_seed=1000), "config.data.version_seed = 1000 must be a whole number from 0 to 999"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_mistakes_end_in_one_sentence(tmp_path, in_this_process, changes, message):
  with pytest.raises(ValueError, match=message):
    load(tmp_path, **dict(task="reasoning_gym:chain_sum") | changes)


def test_a_library_that_is_missing_and_a_reward_of_other_data_are_said(tmp_path, monkeypatch):
  c = base.get_config("local")
  c.model.path, c.data.task = "somewhere", "reasoning_gym:gcd"
  with pytest.raises(ValueError, match=r"brings its own verifier, .* set --config.reward.accuracy=\"\{'fn'"):
    check.check(c, 1)
  c.data.task, c.data.train = "local", ConfigDict(dict(a=dict(task="reasoning_gym:lcm")))
  with pytest.raises(ValueError, match=r"config.data.task = 'reasoning_gym:lcm' brings its own verifier"):
    check.check(c, 1)
  monkeypatch.setattr(sys, "path", [])
  with pytest.raises(ValueError, match=r"'reasoning_gym:gcd': reasoning-gym is not installed; pip install"):
    load(tmp_path, task="reasoning_gym:gcd")


@pytest.mark.slow
def test_rows_do_not_follow_the_hash_seed_of_the_process():
  """isomorphic_strings, for one, follows the order of a set."""
  program = (
    "import json; from grpojax.data import procedural; "
    "print(json.dumps(list(procedural.draw('isomorphic_strings', {}, 7, 8))))"
  )
  drawn = []
  for seed in ("2", "3"):
    environment = os.environ | dict(PYTHONHASHSEED=seed)
    drawn.append(subprocess.check_output([sys.executable, "-c", program], env=environment))
  assert drawn[0] == drawn[1] and len(json.loads(drawn[0])) == 8
