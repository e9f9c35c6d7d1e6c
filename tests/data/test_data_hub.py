"""Datasets on the hub by subset and split, against a hub of this machine; and files of several kinds."""

import csv
import io
import json
from pathlib import Path

import data_toys
import hub_server
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants
from ml_collections import ConfigDict

from grpojax.config.schema import DATA_KEYS
from grpojax.data import pipeline
from grpojax.data.local import files
from grpojax.recipes import base
from grpojax.runtime import hub

TOKENIZER = data_toys.tokenizer()
SAVED = Path(__file__).parent / "saved_to_disk"  # by DatasetDict.save_to_disk of datasets 5.2.0


def parquet(rows):
  sink = io.BytesIO()
  pq.write_table(pa.Table.from_pylist(rows), sink)
  return sink.getvalue()


def gsm8k(*pairs):
  return parquet([dict(question=q, answer=f"so\n#### {a}") for q, a in pairs])


GSM8K = {
  "README.md": """---
configs:
- config_name: main
  data_files:
  - {split: train, path: main/train-*}
  - {split: test, path: main/test-*}
- config_name: socratic
  data_files:
  - {split: train, path: socratic/train-*}
---
# A card""",
  "main/train-00000-of-00002.parquet": gsm8k(("1+1?", 2), ("1+2?", 3)),
  "main/train-00001-of-00002.parquet": gsm8k(("1+3?", 4)),
  "main/test-00000-of-00001.parquet": gsm8k(("5+5?", 10)),
  "socratic/train-00000-of-00001.parquet": gsm8k(("6+6?", 12)),
}
LINES = "".join(json.dumps(dict(prompt=f"{i}+0?", answer=str(i))) + "\n" for i in range(30))
REPOS = {
  "openai/gsm8k": GSM8K,
  "me/lines": {"data/train.jsonl": LINES, "notes.txt": "", "data/dev.jsonl": LINES},
  "me/one": {"everything.jsonl": LINES},
  "me/only-test": {"test.jsonl": LINES},
  "me/script": {"script.py": "raise SystemExit", "README.md": "no metadata"},
  "me/two": {"README.md": "---\nconfigs:\n- config_name: a\n- config_name: b\n---\n", "a/train.jsonl": LINES},
  "me/under": {
    "README.md": "---\nconfigs:\n- config_name: default\n  data_dir: x\n---\n",
    "x/train.csv": "prompt,answer\n2+2?,4\n",
    "train.csv": "prompt,answer\nno?,0\n",
  },
}


@pytest.fixture
def asked(tmp_path, monkeypatch):
  repos = {name: hub_server.Repo(found) for name, found in REPOS.items()}
  with hub_server.serve(datasets=repos) as (endpoint, asked):
    hub_server.use(monkeypatch, endpoint, tmp_path)
    yield asked


def load(folder, *splits, **changes):
  keys = base.get_config("local").data
  for key, value in changes.items():
    keys[key] = ConfigDict(value) if isinstance(value, dict) else value
  path = pipeline.prepare(keys, folder / "cache", DATA_KEYS)
  return [pipeline.load_split(keys, path, split, TOKENIZER) for split in splits or ("train", "test")]


def questions(split):
  return {(record["question"], record["answer"]) for record in split.records}


def test_a_known_dataset_needs_nothing_but_its_name(asked, tmp_path, monkeypatch):
  train, test = load(tmp_path, path="openai/gsm8k", test_path="openai/gsm8k")
  assert questions(train) == {("1+1?", "2"), ("1+2?", "3"), ("1+3?", "4")}
  assert questions(test) == {("5+5?", "10")}
  assert not any("socratic" in str(path) for _, path in asked)  # nothing that is not needed
  (commit,) = set(hub.commits().values())
  count = len(asked)
  monkeypatch.setattr(hub, "_FETCHED", {})
  monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
  assert questions(load(tmp_path, path="openai/gsm8k", test_path="openai/gsm8k")[0]) == questions(train)
  assert set(hub.commits().values()) == {commit} and len(asked) == count


def test_subsets_splits_and_revisions_are_chosen_by_keys(asked, tmp_path):
  (train,) = load(tmp_path, "train", train=dict(a=dict(path="openai/gsm8k", subset="socratic")), test=dict(
    b=dict(path="openai/gsm8k@main", split="test")
  ))  # fmt: skip
  assert questions(train) == {("6+6?", "12")}
  train, test = load(tmp_path, path="me/lines", test_path="hf://datasets/me/lines", test_split="validation",
                     decontaminate=False)  # fmt: skip
  assert len(train.records) == len(test.records) == 30
  assert sum(len(split.records) for split in load(tmp_path, path="me/one")) == 30  # all are "train"
  (test,) = load(tmp_path, "test", test=dict(b=dict(path="me/only-test", prompt="prompt", answer="answer")))
  assert len(test.records) == 30
  assert questions(load(tmp_path, "train", path="me/under", test_path="me/only-test")[0]) == {("2+2?", "4")}


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    (dict(path="me/script"), "'me/script' has no files of split 'train', but of none in .jsonl,"),
    (dict(path="me/only-test"), "has no files of split 'train', but of test; set config.data.split"),
    (dict(path="me/lines", test_path="me/lines"), "but of train, validation; set config.data.test_split"),
    (dict(path="openai/gsm8k", subset="mian"), "has the subsets main, socratic; set config.data.subset"),
    (dict(path="me/two"), "'me/two' has the subsets a, b; set config.data.subset"),
    (dict(path="me/lines", subset="x"), "'me/lines' has no subset 'x'"),
    (dict(path="me/none"), "config.data.path = 'me/none' is neither .* nor a dataset on the hub"),
    (dict(path="me/lines@v1"), "has no revision 'v1'"),
    (dict(path="nowhere.jsonl"), "is not on this machine; .jsonl, .json, .csv, .parquet, .arrow are"),
    (dict(path="/none/*.csv"), "matches no such file"),
    (dict(path=str(SAVED), split="valid"), "has no split 'valid', but train, test; name one"),
  ],
)
def test_what_is_not_there_is_said_in_one_sentence(asked, tmp_path, changes, message):
  with pytest.raises(ValueError, match=message) as caught:
    load(tmp_path, **changes)
  assert "\n" not in str(caught.value)


def test_a_folder_of_save_to_disk_is_read_by_split(tmp_path):
  train, test = load(tmp_path, path=str(SAVED), test_path=str(SAVED))
  assert questions(train) == {(f"{i}+{i}?", str(2 * i)) for i in (3, 1, 5, 7, 2, 0, 4)}
  assert questions(test) == {("9+9?", "18")}
  (again,) = load(tmp_path, "train", path=f"{SAVED}/train", test_path=f"{SAVED}/test")
  assert questions(again) == questions(train)
  as_file = tmp_path / "rows.arrow"
  table = pa.Table.from_pylist([dict(prompt="1?", answer="1")])
  with pa.ipc.new_file(as_file, table.schema) as writer:
    writer.write_table(table)
  assert [row for _, row in files.read(as_file)] == [dict(prompt="1?", answer="1")]


def test_a_csv_file_is_read_as_texts_and_bad_lines_are_counted(tmp_path):
  path = tmp_path / "rows.csv"
  with path.open("w", newline="", encoding="utf-8-sig") as file:
    writer = csv.writer(file)
    writer.writerows([["prompt", "answer"], ['a, "b"\nc?', "007"], ["short"], ["long", "1", "2"]])
    writer.writerow(["d?", "1.50"])
  read = dict(files.read(path))
  assert read["rows.csv:1"] == {"prompt": 'a, "b"\nc?', "answer": "007"}
  (train,) = load(tmp_path, "train", path=str(path), test_path=f"{SAVED}/test")
  assert questions(train) == {('a, "b"\nc?', "007"), ("d?", "1.50")}
  assert "2 malformed (the first is rows.csv:2: no answer" in train.notes[0]
  (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
  with pytest.raises(ValueError, match="the column 'a' stands there twice"):
    list(files.read(tmp_path / "twice.csv"))
