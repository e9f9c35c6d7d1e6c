"""Local files end to end: read, cleaned, counted, stored, and stored again when a file changes."""

import json

import data_toys
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ml_collections import ConfigDict

from grpojax.config.schema import DATA_KEYS
from grpojax.data import pipeline
from grpojax.data.local import clean, files, sources

TOKENIZER = data_toys.tokenizer()
gsm8k = lambda question, answer: dict(question=question, answer=f"so\n#### {answer}")
math = lambda problem, answer: dict(problem=problem, answer=answer)

EASY = [
  gsm8k("Two and two?", 4),
  gsm8k("One  and one?", 2),
  b'{"question": "cut off',
  gsm8k("One and one?\n", 2),  # repeats the second row
  gsm8k("Three?", 3),
  gsm8k("Three?", 4),  # contradicts the row above
  gsm8k("Three? ", 3),
  gsm8k("Held out?", 5),  # is in the test split
  gsm8k("Unmarked?", "").copy() | dict(answer="5"),
]
HARD = [math("Half?", r"\frac12"), math("Two  and two?", "4.0"), math("Root?", "7"), math("Cube?", "8")]
TEST = [math("held  out?", "5"), math("New?", "1"), math("New? ", "1")]  # the first in another case


@pytest.fixture
def folder(tmp_path):
  data_toys.write(tmp_path / "train.jsonl", EASY)
  data_toys.write(tmp_path / "hard.parquet", HARD)
  data_toys.write(tmp_path / "test.json", TEST)
  return tmp_path


def config(folder, **changes):
  return ConfigDict(
    dict(
      task="local",
      train=dict(
        easy=dict(layout="gsm8k", path=f"{folder}/train.jsonl"),
        hard=dict(layout="math", path=f"{folder}/hard.parquet"),
      ),
      test=dict(held=dict(layout="math", path=f"{folder}/test.json")),
      on_malformed="skip",
      dedup=True,
      decontaminate=True,
      prompt_budget=200,
      overlong_prompts="drop",
      template="none",
      system="",
      chat=True,
      mixture={},
    )
    | changes
  )


def load(folder, split="train", **changes):
  keys = config(folder, **changes)
  path = pipeline.prepare(keys, folder / "cache", DATA_KEYS)
  return pipeline.load_split(keys, path, split, TOKENIZER)


def asked(split):
  return {(record["source"], record["question"], record["answer"]) for record in split.records}


def counts(folder, **changes):
  path = pipeline.prepare(config(folder, **changes), folder / "cache", DATA_KEYS)
  return json.loads((path / "metadata.json").read_text())["counts"]


def test_one_row_a_question_and_none_that_is_tested_or_disputed(folder):
  train, test = load(folder), load(folder, "test")
  easy = {("easy", "Two and two?", "4"), ("easy", "One  and one?", "2")}
  assert asked(train) == easy | {
    ("hard", q, a) for q, a in [("Half?", r"\frac12"), ("Root?", "7"), ("Cube?", "8")]
  }
  assert asked(test) == {("held", "held  out?", "5"), ("held", "New?", "1")}
  assert len({record["uid"] for record in train.records}) == 5
  assert train.weights is None and train.dropped == 0


def test_every_row_is_accounted_for_and_said(folder):
  found = counts(folder)
  easy, hard, held = found["train"]["easy"], found["train"]["hard"], found["test"]["held"]
  places = easy.pop("locations")
  assert easy == dict(rows=9, malformed=2, repeats=1, contradicting=3, in_test=1, kept=2)
  assert [place.split(" ")[0] for place in places] == ["train.jsonl:3:", "train.jsonl:9:"]
  assert (hard["rows"], hard["repeats"], hard["kept"]) == (4, 1, 3)  # of a row of the other source
  assert (held["rows"], held["repeats"], held["kept"]) == (3, 1, 2)
  for one in (easy, hard, held):
    left_out = ("malformed", "repeats", "contradicting", "in_test")
    assert one["rows"] == one["kept"] + sum(one[reason] for reason in left_out)
  assert load(folder).notes == (
    "easy: 2 of 9 rows; left out: 2 malformed (the first is train.jsonl:3: Unterminated string starting at:"
    " line 1 column 14 (char 13)), 1 repeat a question, 3 disagree about an answer, 1 ask what the test"
    " split asks",
    "hard: 3 of 4 rows; left out: 1 repeat a question",
  )
  assert load(folder, "test").notes == ("held: 2 of 3 rows; left out: 1 repeat a question",)


def test_nothing_is_left_out_where_the_config_says_so(folder):
  train = load(folder, dedup=False, decontaminate=False)
  assert len(train.records) == 7 + 4 and len({record["uid"] for record in train.records}) == 11
  assert sum(record["question"] == "Three?" for record in train.records) == 3
  assert train.notes[0] == (
    "easy: 1 rows ask what the test split asks, and stay in (config.data.decontaminate)"
  )
  kept = load(folder, decontaminate=False)
  assert ("easy", "Held out?", "5") in asked(kept) and len(kept.records) == 6


def test_benchmarks_of_the_test_split_may_share_questions_with_each_other(folder):
  test = dict(held=dict(layout="math", path=f"{folder}/test.json"))
  test["again"] = dict(test["held"])
  assert len(load(folder, "test", test=test).records) == 4


def test_a_malformed_row_can_stop_the_run(folder):
  message = r"config.data.train.easy: train.jsonl:3 is malformed \(Unterminated .*on_malformed = 'skip'"
  with pytest.raises(ValueError, match=message):
    load(folder, on_malformed="error")
  assert [path.suffix for path in (folder / "cache").iterdir()] == [".lock"]


def test_the_dataset_is_made_again_when_a_file_changes_and_only_then(folder, monkeypatch):
  first = pipeline.prepare(config(folder), folder / "cache", DATA_KEYS)
  with monkeypatch.context() as patch:
    patch.setattr(sources, "read", lambda *_: pytest.fail("built again"))
    (folder / "train.jsonl").touch()
    of_the_prompt = dict(template="boxed", system="Hi", mixture=dict(easy=1.0), prompt_budget=9, chat=False)
    assert pipeline.prepare(config(folder, **of_the_prompt), folder / "cache", DATA_KEYS) == first
  data = (folder / "train.jsonl").read_bytes()
  (folder / "train.jsonl").write_bytes(data.replace(b"Two and two?", b"Two and ten?"))  # as long as before
  assert pipeline.prepare(config(folder), folder / "cache", DATA_KEYS) != first
  assert ("easy", "Two and ten?", "4") in asked(load(folder))


def test_parquet_rows_are_counted_through_row_groups_and_batches(tmp_path, monkeypatch):
  monkeypatch.setattr(files, "_BATCH", 3)
  data_toys.write(tmp_path / "a.parquet", [math(f"{i}?", str(i)) for i in range(10)] + [math("", "1")])
  source = dict(a=dict(layout="math", path=str(tmp_path)))
  examples, seen = sources.read(sources.find(dict(train=source, test=source))[0], "skip", True)
  assert [example["question"] for example in examples] == [f"{i}?" for i in range(10)]
  assert seen.locations == ["a.parquet:11: no question in its columns problem, answer"]


@pytest.mark.parametrize("other", ["val", "gsm8k-dev", "eval_2", "validation", "test"])
def test_a_folder_of_two_splits_is_refused_whatever_the_second_is_called(tmp_path, other):
  for name in ("train", other):
    (tmp_path / f"{name}.jsonl").write_text("{}\n")
  with pytest.raises(ValueError, match="holds files of train and "):
    files.find("config.data", str(tmp_path))
  (tmp_path / f"{other}.jsonl").rename(tmp_path / "evaluations_of_devices.jsonl")
  assert len(files.find("config.data", str(tmp_path))) == 2


def test_folders_and_patterns(folder):
  with pytest.raises(
    ValueError, match=r"train.easy.path = '.*' holds files of train and test; write a pattern"
  ):
    load(folder, train=dict(easy=dict(layout="gsm8k", path=str(folder))))
  (folder / "shards").mkdir()
  for i in range(3):
    data_toys.write(folder / f"shards/part-{i}.jsonl", [gsm8k(f"{i}?", i)])
  (folder / "shards/README.md").write_text("no rows here")
  for path in ("shards", "shards/part-*.jsonl", "**/part-?.jsonl"):
    train = load(folder, train=dict(easy=dict(layout="gsm8k", path=f"{folder}/{path}")))
    assert {record["question"] for record in train.records} == {"0?", "1?", "2?"}


ILLEGAL = [
  (dict(train={}, test={}), r"config.data.path names no file; set it, or config.data.task to a generator"),
  (dict(train={}), r"config.data has no rows for split 'train', only for test"),
  (dict(test={}, held_out=0), r"config.data.test names no source, and of \d questions config.data.held_out"),
  (dict(train=dict(a=dict(layout="gsm"))), r"train.a.layout = 'gsm' is unknown; choose one of columns, gs"),
  (dict(train=dict(a=dict(layout="aime", paths=""))), r"train.a.paths is set, but layout 'aime' takes la"),
  (dict(train=16384), r"config.data.train = 16384 must be a dict of sources"),
  (dict(train=dict(a="/x.jsonl")), r"train.a = '/x.jsonl' must be a dict with 'layout' and 'path'"),
  (dict(train=dict(a=dict(path="x"))), r"train.a.prompt is missing"),
  (dict(train=dict(a=dict(layout="gsm8k"))), r"train.a.path is empty"),
  (dict(train=dict(a=dict(layout="gsm8k", path="no/where.txt"))), r"HF_HUB_OFFLINE is set; unset it, or"),
  (dict(train=dict(a=dict(layout="gsm8k", path="/no/where.txt"))), r"'/no/where.txt' is not on this machine"),
  (dict(on_malformed="ignore"), r"config.data.on_malformed = 'ignore', but it is 'skip' or 'error'"),
  (dict(weights=1), r"config.data.weights is set, but Local takes task, knobs, rows, version_seed"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), ILLEGAL)
def test_illegal_settings_are_refused_with_a_sentence(folder, changes, message):
  with pytest.raises(ValueError, match=message):
    load(folder, **changes)


def test_one_file_is_enough(tmp_path):
  """config.data.path and its columns; a tenth is held out, the same whatever the order of the rows."""
  rows = [dict(q=f"{i} and {i}?", gold=2 * i, also=i) for i in range(40)]
  held = []
  for name, order in (("a", rows), ("b", rows[::-1])):
    path = data_toys.write(tmp_path / f"{name}.jsonl", order)
    c = config(tmp_path, train={}, test={}, path=str(path), layout="columns", prompt="q", answer="gold")
    where = pipeline.prepare(c, tmp_path / "cache", DATA_KEYS)
    train, test = (pipeline.load_split(c, where, split, TOKENIZER) for split in ("train", "test"))
    assert (len(train.records), len(test.records)) == (36, 4)
    assert "held_out: 4 of the training rows" in " ".join(test.notes)
    questions = {r["question"] for r in test.records}
    assert not questions & {r["question"] for r in train.records}
    assert all(r["answer"] == str(2 * int(r["question"].split()[0])) for r in test.records)
    held.append(questions)
  assert held[0] == held[1]


def test_test_sources_alone_are_read_as_beside_training_sources(folder):
  beside, alone = (load(folder, "test", **changes) for changes in ({}, dict(train={})))
  assert asked(alone) == asked(beside) and alone.notes == beside.notes


def test_a_layout_and_a_test_file_by_their_paths(folder):
  split = dict(train={}, test={}, layout="math", path=f"{folder}/hard.parquet")
  c = config(folder, **split, test_path=f"{folder}/test.json")
  where = pipeline.prepare(c, folder / "cache", DATA_KEYS)
  assert len(pipeline.load_split(c, where, "test", TOKENIZER).records) == 2
  assert len(pipeline.load_split(c, where, "train", TOKENIZER).records) == 4


def test_files_that_will_not_do_are_refused_with_a_sentence(folder):
  wrong = dict(easy=dict(layout="math", path=f"{folder}/train.jsonl"))
  with pytest.raises(ValueError, match=r"easy: of 9 rows none can be used \(train.jsonl:1: no q"):
    load(folder, train=wrong)
  (folder / "empty.jsonl").write_text("\n")
  with pytest.raises(ValueError, match=r"of 0 rows none can be used \(they are empty\)"):
    load(folder, train=dict(a=dict(layout="math", path=f"{folder}/empty.jsonl")))
  only = dict(a=dict(layout="columns", path=f"{folder}/hard.parquet", prompt="problem"))
  with pytest.raises(
    ValueError, match=r"config.data.train has no rows left \(a: 0 of 4 rows; left out: 4 ask"
  ):
    load(folder, train=only, test=only)
  for name in ("torn.parquet", "torn.json"):
    whole = (folder / ("hard.parquet" if name.endswith("parquet") else "test.json")).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=rf"{name} cannot be read"):
      load(folder, train=dict(a=dict(layout="math", path=f"{folder}/{name}")))


def test_a_mixture_draws_sources_in_its_proportions(folder):
  split = load(folder)
  weighed = pipeline.weigh(split, dict(hard=3.0, easy=1))
  share = {}
  for record, weight in zip(split.records, weighed.weights, strict=True):
    share.setdefault(record["source"], []).append(weight)
  assert weighed.weights.dtype == np.float32
  np.testing.assert_allclose(sorted(share["easy"]), [1 / 8] * 2, rtol=1e-6)
  np.testing.assert_allclose(sorted(share["hard"]), [3 / 12] * 3, rtol=1e-6)
  assert pipeline.weigh(split, {}) is split

  stream = pipeline.Stream(weighed, TOKENIZER, 1, seed=0)
  drawn = [stream.next(weighed.weights).example[0]["source"] for _ in range(400)]
  assert abs(drawn.count("hard") / 400 - 0.75) < 0.1  # 4.6 sigma


@pytest.mark.parametrize(
  ("mixture", "message"),
  [
    (
      dict(easy=1.0),
      r"config.data.mixture names easy, but split 'train' has rows of (easy, hard|hard, easy)",
    ),
    (dict(easy=1.0, hard=0.0), r"config.data.mixture.hard = 0.0 must be a positive number"),
    (dict(easy=1.0, hard=float("nan")), r"config.data.mixture.hard = nan must be"),
    (dict(easy=1.0, hard="x"), r"config.data.mixture.hard = x must be"),
    ({1: 2}, r"config.data.mixture names 1, but split 'train' has rows of"),
  ],
)
def test_a_mixture_that_cannot_be_is_refused(folder, mixture, message):
  with pytest.raises(ValueError, match=message):
    pipeline.weigh(load(folder), mixture)


rows_of_few_questions = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("12")), max_size=12)


@given(rows_of_few_questions)
def test_cleaning_agrees_with_a_rule_stated_row_by_row(rows):
  examples = [dict(uid=q, answer=a, row=i) for i, (q, a) in enumerate(rows)]
  counts = clean.Counts()
  kept = clean.deduplicate(examples, counts)
  agreed = [len({a for q, a in rows if q == question}) == 1 for question, _ in rows]
  first = [question not in [q for q, _ in rows[:i]] for i, (question, _) in enumerate(rows)]
  assert [e["row"] for e in kept] == [i for i in range(len(rows)) if agreed[i] and first[i]]
  assert counts.contradicting == agreed.count(False)
  assert counts.repeats == sum(a and not f for a, f in zip(agreed, first, strict=True))


def test_what_makes_two_questions_one():
  same = ["Café  x\n+ 1?", "Cafe\u0301 x + 1? "]
  assert len({clean.question_hash(question, "") for question in same}) == 1
  different = ["x² = 1?", "x2 = 1?", "x 2 = 1?", "x² = 1", "X² = 1?"]
  assert len({clean.question_hash(question, "") for question in different}) == 5
  assert clean.question_hash("Go on.", "[1]") != clean.question_hash("Go on.", "[2]")
