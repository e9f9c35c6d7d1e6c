"""Files and flags that no sane person would give: each ends in a sentence or in a run that lost nothing.

`GRPOJAX_FUZZ=seed:times` draws other cases, and so many times as many.
"""

import importlib
import itertools
import json
import os
import sys
from pathlib import Path
from random import Random

import data_toys
import fuzzing
import pyarrow.parquet as pq
import pytest
from absl import flags

from grpojax import main, train
from grpojax.config import commandline
from grpojax.config.schema import DATA_KEYS
from grpojax.data import pipeline
from grpojax.data.local import sources
from grpojax.objective.build import BESIDE, LISTS, SLOTS, functions, knobs_of
from grpojax.recipes import base
from grpojax.runtime import errors

SEED, TIMES = map(int, os.environ.get("GRPOJAX_FUZZ", "0:1").split(":"))
TOKENIZER = data_toys.tokenizer()
pytestmark = pytest.mark.filterwarnings("ignore")


some_or_all = pytest.mark.parametrize("share", [0.2, pytest.param(1.0, marks=pytest.mark.slow)])


def cases(n: int, kind: str, share: float):
  """(number, its own source of randomness)."""
  return [(i, Random(f"{SEED}/{kind}/{i}")) for i in range(int(n * TIMES * share))]


def none_deep(bad: list, taken: int = 1) -> None:
  """`taken`: how many ended in a run, lest all be refused for what nobody meant."""
  assert taken, "too few cases were taken"
  assert not bad, f"{len(bad)} cases, the first of them: {bad[:12]}"


# layout -> rows as its files have them
MAKE = {
  "columns": lambda i: dict(prompt=f"é {i} and {i}?", answer=f"{2 * i}", also=[i]),
  "gsm8k": lambda i: dict(question=f"How many are {i}?", answer=f"so\n#### {i},000"),
  "math": lambda i: dict(problem=f"Half of {i}?", solution=rf"$\boxed{{\frac{{{i}}}{{2}}}}$", level="1"),
  "dapo_math": lambda i: dict(
    prompt=[dict(role="user", content=f"What is {i}?")],
    reward_model=dict(ground_truth=f"{i}", style="rule"),
    extra_info=dict(index=f"9a{i}"),
  ),
  "countdown": lambda i: dict(target=i, nums=[i, 2, 3]),
  "olympiadbench": lambda i: dict(question=f"Find {i}.", final_answer=[f"{i}"], context="Let n > 0."),
  "apps": lambda i: dict(
    question=f"Add {i}.", input_output=json.dumps(dict(inputs=[f"{i}\n"], outputs=["3\n"])), starter_code=""
  ),
  "livecodebench": lambda i: dict(
    question_content=f"Add {i}.",
    starter_code="",
    public_test_cases=json.dumps([dict(input="1\n", output="3\n", testtype="stdin")]),
    private_test_cases="[]",
    metadata="{}",
  ),
}


def entry(layout: str, path) -> dict:
  columns = dict(prompt="prompt", answer="answer") if layout == "columns" else {}
  return dict(layout=layout, path=str(path)) | columns


def read(layout: str, path, on_malformed: str, dedup: bool):
  (source,) = sources.find(dict(train=dict(it=entry(layout, path)), test={}))
  return sources.read(source, on_malformed, dedup)


def rows_in(path: Path) -> int | None:
  """How many rows a file has, found without the code under test; None where nobody can tell."""
  if path.suffix == ".parquet":
    return pq.read_metadata(path).num_rows
  if path.suffix == ".jsonl":
    return sum(bool(line.strip()) for line in path.read_bytes().split(b"\n"))
  return len(json.loads(path.read_bytes()))


def lost(path: Path, found) -> str:
  """What a reading has lost without a word; "": nothing."""
  examples, counts = found.value
  parts = counts.malformed + counts.repeats + counts.contradicting + len(examples)
  if parts != counts.rows:
    return f"{parts} of {counts.rows} rows are accounted for"
  if counts.rows != rows_in(path):
    return f"{counts.rows} of {rows_in(path)} rows were read"
  if counts.malformed and not counts.locations[0].startswith(f"{path.name}:"):
    return f"{counts.locations[0]} is no place"
  return ""


def wrong_about(path: Path, layout: str, rng: Random) -> str:
  """What is wrong with how this file is read; "": nothing."""
  on_malformed = rng.choice(["skip", "skip", "error"])
  found = fuzzing.outcome(read, layout, path, on_malformed, rng.random() < 0.8)
  if found.deep:
    return found.deep
  if found.error:
    return "" if path.name in found.error or "config.data.train.it" in found.error else found.error
  return lost(path, found)


@some_or_all
def test_a_file_with_damaged_bytes(tmp_path, share):
  bad = []
  for i, rng in cases(800, "bytes", share):
    layout, suffix = rng.choice(sorted(MAKE)), rng.choice(["jsonl", "jsonl", "json", "parquet"])
    rows = [MAKE[layout](k) for k in range(rng.choice([1, 6, 40]))]
    path = data_toys.write(tmp_path / f"file.{suffix}", rows)
    data, how = path.read_bytes(), [rng.choice(fuzzing.BYTES) for _ in range(rng.choice([1, 1, 2]))]
    for mutate in how:
      data = mutate(rng, data) if data else data
    path.write_bytes(data)
    said = wrong_about(path, layout, rng)
    bad += [(i, layout, suffix, [h.__name__ for h in how], said)] if said else []
  none_deep(bad)


@some_or_all
def test_a_bad_row_costs_that_row_and_no_other(tmp_path, share):
  bad = []
  for i, rng in cases(500, "rows", share):
    layout = rng.choice(sorted(MAKE))
    good = [MAKE[layout](k) for k in range(2, 12)]
    spoilt = set(rng.sample(range(10), rng.choice([1, 3])))
    rows = [fuzzing.spoil(rng, row) if k in spoilt else row for k, row in enumerate(good)]
    path = data_toys.write(tmp_path / "file.jsonl", rows)
    said = wrong_about(path, layout, rng)
    if not said:
      others = [row for k, row in enumerate(good) if k not in spoilt]
      wanted = {example["question"] for example in whole(tmp_path, layout, others)}
      examples, counts = read(layout, path, "skip", False)
      places = {int(place.split(":")[1]) - 1 for place in counts.locations}
      right = wanted <= {example["question"] for example in examples} and places <= spoilt
      said = "" if right else "another row was lost"
    bad += [(i, layout, [rows[k] for k in spoilt if len(str(rows[k])) < 400], said)] if said else []
  none_deep(bad)


def whole(folder: Path, layout: str, rows: list[dict]) -> list[dict]:
  path = data_toys.write(folder / "whole.jsonl", rows)
  return read(layout, path, "error", False)[0]


@some_or_all
def test_a_parquet_file_with_other_columns(tmp_path, share):
  bad = []
  for i, rng in cases(300, "columns", share):
    layout = rng.choice(sorted(MAKE))
    path = tmp_path / "file.parquet"
    fuzzing.odd_parquet(rng, [MAKE[layout](k) for k in range(rng.choice([1, 9, 300]))], path)
    said = wrong_about(path, layout, rng)
    bad += [(i, layout, pq.read_schema(path).to_string()[:200], said)] if said else []
  none_deep(bad)


def settings(rng: Random, layout: str, path: Path):
  """config.data of one file, cleaned and asked in one way of many."""
  c = base.get_config("local").data
  c.update(entry(layout, path), held_out=rng.choice([0, 1, 3, 10**9]))
  c.update(on_malformed=rng.choice(["skip", "skip", "skip", "error"]), dedup=rng.random() < 0.7)
  c.update(overlong_prompts=rng.choice(["drop", "drop", "error"]))
  c.update(prompt_budget=rng.choice([1, 60, 90, 4000]), chat=rng.random() < 0.8)
  c.update(template=rng.choice(["none", "boxed", "{question}"]), system=rng.choice(["", "Hi"]))
  return c


def load(c, cache: Path):
  folder = pipeline.prepare(c, cache, DATA_KEYS)
  needs = ("tests",) if c.layout in ("apps", "livecodebench") else ("answer",)
  names = pipeline.splits(folder)
  return folder, [pipeline.load_split(c, folder, name, TOKENIZER, lambda _: needs) for name in names]


@pytest.mark.slow
@some_or_all
def test_from_a_file_to_prompts_every_row_is_kept_or_counted(tmp_path, share):
  bad = []
  for i, rng in cases(150, "load", share):
    layout = rng.choice(sorted(MAKE))
    good = [MAKE[layout](k) for k in range(2, 14)]
    rows = [fuzzing.spoil(rng, row) if rng.random() < 0.2 else row for row in good]
    path = data_toys.write(tmp_path / "file.jsonl", rows)
    found = fuzzing.outcome(load, settings(rng, layout, path), tmp_path / "cache")
    said = found.deep
    if found.value:
      folder, splits = found.value
      counts = json.loads((folder / "metadata.json").read_text())["counts"]["train"]["file"]
      kept = sum(len(split.records) + split.dropped for split in splits)
      held = kept - counts["kept"]
      left_out = sum(counts[why] for why in ("malformed", "repeats", "contradicting", "in_test"))
      right = rows_in(path) == counts["rows"] == kept + left_out and held >= 0
      said = "" if right else f"{kept} rows of {counts}"
      if any(len(prompt) > split.budget for split in splits for prompt in split.prompts):
        said = "a prompt is over its budget"
    odd = [row for row in rows if row not in good and len(str(row)) < 400]
    bad += [(i, layout, odd, said)] if said else []
  none_deep(bad)


@some_or_all
def test_a_prepared_dataset_that_was_damaged_is_refused(tmp_path, share):
  path = data_toys.write(tmp_path / "file.jsonl", [MAKE["gsm8k"](k) for k in range(40)])
  c = base.get_config("local").data
  c.update(entry("gsm8k", path), held_out=4)
  folder = pipeline.prepare(c, tmp_path / "cache", DATA_KEYS)
  files = {file: file.read_bytes() for file in sorted(folder.iterdir())}
  bad = []
  for i, rng in cases(150, "stored", share):
    file = rng.choice(sorted(files))
    data = rng.choice([*fuzzing.BYTES, lambda *_: None])(rng, files[file])
    file.unlink() if data is None else file.write_bytes(data)
    found = fuzzing.outcome(load, c, tmp_path / "cache")
    said = found.deep or ("damage was not seen" if data != files[file] and not found.error else "")
    said = said or (found.error if found.error and str(folder) not in found.error else "")
    bad += [(i, file.name, said)] if said else []
    file.write_bytes(files[file])
  none_deep(bad)
  assert len(load(c, tmp_path / "cache")[1]) == 2


def test_a_folder_among_the_files_of_a_prepared_dataset_is_said(tmp_path):
  path = data_toys.write(tmp_path / "file.jsonl", [MAKE["gsm8k"](k) for k in range(40)])
  c = base.get_config("local").data
  c.update(entry("gsm8k", path), held_out=4)
  folder = pipeline.prepare(c, tmp_path / "cache", DATA_KEYS)
  (folder / "sub").mkdir()
  with pytest.raises(ValueError, match=rf"{folder} is not what was written \('sub'\); delete it"):
    load(c, tmp_path / "cache")


RECIPES = ("grpo", "dapo", "gspo", "gtpo", "gigpo", "spo", "moe", "stack", "reinforce_pp", "quantized")
VALUES = {
  bool: ["2", "maybe", "", "nan", "None", "-1"],
  int: ["-1", "0", "-7", "1000000007", "9" * 30, "nan", "x", "", "1.5", "True", "[]", "{}", "1e3"],
  float: ["-1.0", "-0.5", "nan", "inf", "-inf", "x", "", "True", "[1]", "9" * 400],
  str: ["nope", "-1", "\0", "../../etc", "é", "{", "nope:nope", "json:loads"],
  dict: [
    "", "7", "None", "nan", "{'x': 1}", "{'fn': 'x'}", "{'fn': None}", "{'fn': 7, 'x': {}}", "[1]", "{", "x",
    "{'x': {'fn': 'kl_k3', 'beta': 'x'}}", "{'x': {'fn': 'json:loads'}}", "{'x': {}}", "{1: 2}",
    "{'x': {'fn': 'rules:integer_answer'}}", "{'x': {'fn': 'shaping:process', 'scorer': 7}}",
    "{'x': [1, {}]}", "{'fn': '\\0:x'}",
  ],
}  # fmt: skip
ALONE = ("cache_dir", "mesh.cpu_devices", "print_sharding")  # are of this process, or run nothing
ANY_TEXT = (
  "data.system", "interruption.text", "interruption.unless", "lora.modules", "log.project", "name",
  "process.scorer", "reward.accuracy.marker", "teacher.column",
  *("judge.marker", "judge.rubric", "preference.loss.fn", "preference.path", "sft.path"),  # stages check them
)  # fmt: skip
SIGNED = ("objective", "reward", "adaptive_group.positive", "data", "env.success", "mesh.", "rollout.slots")


def recipe(name: str, scale: str = "tiny"):
  return importlib.import_module(f"grpojax.recipes.{name}").get_config(scale)


def leaves(c, at=""):
  for key, value in c.items():
    yield f"{at}{key}", value
    if hasattr(value, "items"):
      yield from leaves(value, f"{at}{key}.")


@pytest.fixture
def command(tmp_path, monkeypatch):
  """command(recipe, *flags): `python -m grpojax.main` up to where the run would compile; the job."""
  jobs, calls = [], itertools.count()
  monkeypatch.setattr(train, "run", lambda job: not jobs.append(job))

  def call(recipe: str, *overrides: str):
    flags.FLAGS.unparse_flags()
    sys.modules.pop("config_config", None)  # the last recipe, which would lend a new one its functions
    for name in list(flags.FLAGS):
      if name.startswith("config."):
        delattr(flags.FLAGS, name)
    own = [f"--workdir={tmp_path / 'run' / str(next(calls))}"]
    if not any("cache_dir" in override for override in overrides):
      own += [f"--config.cache_dir={tmp_path / 'cache'}"]
    small = ["--config.data.train=32", "--config.data.test=16"] if recipe.endswith(":tiny") else []
    argv = ["main", f"--config={recipe}", *own, "--config.mesh.data=1", *small, *overrides]
    monkeypatch.setattr(sys, "argv", argv)  # where config_flags looks for the keys
    errors.guarded(main.main)(commandline.parse(argv))
    return jobs[-1]

  return call


def refused(found) -> bool:
  return found.error.startswith("error: ")


@pytest.mark.slow
@some_or_all
def test_a_command_with_an_impossible_value(command, share):
  bad, taken = [], 0
  known = {name: list(leaves(recipe(name))) for name in RECIPES}
  for i, rng in cases(600, "flags", share):
    name = rng.choice(RECIPES)
    key, default = rng.choice([(k, v) for k, v in known[name] if k not in ALONE])
    kind = next((kind for kind in (bool, int, float, str) if isinstance(default, kind)), dict)
    value = rng.choice(VALUES[kind])
    path = f"configs/{name}.py:{rng.choice(['tiny'] * 9 + ['local', 'nope'])}"
    found = fuzzing.outcome(command, path, f"--config.{key}={value}")
    said = found.deep or ("" if found.value or refused(found) else found.error)
    if found.value and value == "nan":
      said = "is not a number, and was taken"
    elif found.value and kind in (int, float) and value.startswith("-") and not key.startswith(SIGNED):
      said = "is negative, and was taken"
    elif found.value and kind is str and key not in ANY_TEXT:
      said = "is unknown, and was taken"
    taken += found.value is not None
    bad += [(i, path, key, value[:40], said)] if said else []
  none_deep(bad, taken)


def test_what_is_refused_last_has_not_taken_the_workdir(command, tmp_path):
  """Or the same command, mended, would be refused as another run's."""
  found = fuzzing.outcome(command, "configs/grpo.py:tiny", "--config.load_balance=0.1")
  assert "is for mixtures" in found.error and not (tmp_path / "run").exists()


def test_an_empty_workdir_is_refused_and_no_run_of_another_name_begins(command):
  found = fuzzing.outcome(command, "configs/grpo.py:tiny", "--workdir=")
  assert found.error == "error: --workdir= is empty; name a folder, or leave the flag out for runs/grpo."


@some_or_all
def test_a_command_with_a_slot_whose_knobs_are_impossible(command, share):
  bad, taken = [], 0
  menu = [(slot, *item) for slot in SLOTS + LISTS for item in functions(slot).items()]
  for i, rng in cases(120, "slots", share):
    slot, name, fn = rng.choice(menu)
    beside = {key: "actions" if key == "stream" else 0.1 for key in BESIDE.get(slot, ())}
    knobs = {"fn": name} | beside
    knob = rng.choice([*knobs_of(fn), "beta", "fn", "other"])
    knobs[knob] = rng.choice([None, "x", "", -1, 0, 10**30, [1], {"a": 1}, True, 1e-300, "\0", "a:b", ":"])
    entry = knobs if slot in SLOTS else {"it": knobs}
    found = fuzzing.outcome(command, "configs/grpo.py:tiny", f"--config.objective.{slot}={entry}")
    said = found.deep or ("" if found.value or refused(found) else found.error)
    if found.value and knobs[knob] in ("x", "", [1], {"a": 1}, "\0"):
      said = "was taken"
    taken += found.value is not None
    bad += [(i, slot, knobs, said)] if said else []
  none_deep(bad, taken)


@some_or_all
def test_a_command_with_a_key_that_is_not_there(command, share):
  bad = []
  keys = [key for key, _ in leaves(recipe("grpo"))]
  for i, rng in cases(100, "keys", share):
    letters = list(rng.choice(keys))
    how, at = rng.randrange(4), rng.randrange(len(letters))
    if how == 0:
      letters.pop(at)
    else:
      letters.insert(at, rng.choice(["_", "x", ".", "é", "[0]", "/"]))
    key = "".join(letters)
    found = fuzzing.outcome(command, "configs/grpo.py:tiny", f"--config.{key}=1")
    bad += [] if refused(found) and not found.deep else [(i, key, found.deep or found.error)]
  none_deep(bad)


@pytest.mark.parametrize(
  "text",
  [
    "", "def get_config(", "raise RuntimeError('no')", "get_config = 7", "import nosuchmodule", "\0",
    "raise KeyError(3)", "raise AttributeError", "def get_config(scale):\n  return None",
    "def get_config(scale):\n  return {'steps': 1}", "def get_config():\n  pass",
    "import ml_collections as m\ndef get_config(_):\n  return m.ConfigDict()",
  ],
)  # fmt: skip
def test_a_recipe_that_is_none(command, tmp_path, text):
  path = tmp_path / "recipe.py"
  path.write_text(text)
  found = fuzzing.outcome(command, f"{path}:tiny")
  assert refused(found) and not found.deep, found


DEVICES = [f"mesh.cpu_devices={n}" for n in (10**9, 10**30, 0, -1)]


@pytest.mark.parametrize("override", [*DEVICES, "mesh={'x':1}", "cache_dir=/dev/null/x"])
def test_what_is_set_before_the_config_is_checked(command, override):
  found = fuzzing.outcome(command, "configs/grpo.py:tiny", f"--config.{override}")
  assert refused(found) and not found.deep, found
