"""The embedded task against an evaluator of its own, and the promises of the pipeline."""

import ast
import collections
import filecmp
import json
import operator
import random
import re
import shutil
import threading
import time

import numpy as np
import pytest
from ml_collections import ConfigDict

from grpojax.config.schema import DATA_KEYS
from grpojax.data import demonstrations, mini_aime, pipeline, text
from grpojax.data.mini_aime import problems, scratchpad

TOKENIZER = text.load_tokenizer()
END = TOKENIZER.eos_token_id


def config(**changes):
  return ConfigDict(
    dict(
      task="mini_aime",
      version_seed=0,
      train=300,
      validation=40,
      test=60,
      wrong=0.3,
      rambling=0.3,
      prompt_budget=48,
      overlong_prompts="drop",
    )
    | changes
  )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return pipeline.prepare(config(), tmp_path_factory.mktemp("data"), DATA_KEYS)


@pytest.fixture(scope="module")
def train(folder):
  return pipeline.load_split(config(), folder, "train", TOKENIZER, lambda _: ("answer", "demonstration"))


def generate(rows=2000, **changes):
  """Rows of the task without the files around them."""
  settings = mini_aime.MiniAimeConfig(name="test", train=rows, **changes)
  sizes = dict(train=rows, validation=settings.validation, test=settings.test)
  drawn = mini_aime.generate(settings.version_seed, sizes, settings.form)
  return {k: [mini_aime.to_row(problem, settings) for problem in v] for k, v in drawn.items()}


ROWS = generate()


@pytest.mark.parametrize("form", ["digits", "words"])
def test_a_form_has_questions_of_its_own_and_no_other(form):
  questions = [row["question"] for row in generate(rows=200, form=form)["train"]]
  assert len(set(questions)) == 200
  assert {bool(re.search("[a-z]", one)) for one in questions} == {form == "words"}


# An evaluator that shares no line with the generator: Python's parser for the expressions, the
# words themselves for the stories.

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
STORIES = [
  (r"\w+: (\d+) \w+, buys (\d+)\. Now\?", lambda a, b: a + b),
  (r"\w+: (\d+) \w+, eats (\d+)\. Left\?", lambda a, b: a - b),
  (r"(\d+) bags of (\d+) \w+\. In all\?", lambda a, b: a * b),
  (r"(\d+) \w+, (\d+) more, (\d+) go\?", lambda a, b, c: a + b - c),
  (r"(\d+) bags of (\d+) \w+, (\d+) go\?", lambda a, b, c: a * b - c),
  (r"(\d+) and (\d+) \w+ at (\d+) each\?", lambda a, b, c: (a + b) * c),
  (r"(\d+) bags of (\d+) \w+, (\d+) of (\d+)\?", lambda a, b, c, d: a * b + c * d),
  (
    r"(\d+) bags of (\d+) \w+, (\d+) of (\d+), (\d+) go\?",
    lambda a, b, c, d, e: a * b + c * d - e,
  ),
]


def evaluate(node, seen):
  """The value of a parsed expression; `seen` collects every value and operation on the way."""
  if isinstance(node, ast.Constant):
    return node.value
  left, right = evaluate(node.left, seen), evaluate(node.right, seen)
  value = OPERATORS[type(node.op)](left, right)
  seen.append((type(node.op), left, right, value))
  return value


def solve(question):
  if question.endswith("=?"):
    return evaluate(ast.parse(question.removesuffix("=?"), mode="eval").body, [])
  values = [
    fn(*map(int, match.groups()))
    for pattern, fn in STORIES
    if (match := re.fullmatch(pattern, question))
  ]
  assert len(values) == 1, question
  return values[0]


def all_rows():
  return [row for rows in ROWS.values() for row in rows]


def test_every_answer_is_right_by_an_independent_evaluator():
  for row in all_rows():
    assert row["answer"] == str(solve(row["question"])), row
  kinds = collections.Counter(row["task"] for row in all_rows())
  assert len(kinds) == 1 + len(STORIES) and kinds["expression"] > 1000


def test_every_operation_on_the_way_is_easy_and_stays_within_999():
  lengths = collections.Counter()
  for row in all_rows():
    expression = json.loads(row["meta"])["expression"]
    seen = []
    evaluate(ast.parse(expression, mode="eval").body, seen)
    assert len(seen) == json.loads(row["meta"])["operations"]
    lengths[len(seen)] += 1
    for kind, left, right, value in seen:
      assert all(isinstance(x, int) and 0 <= x <= 999 for x in (left, right, value)), row
      if kind is ast.Mult:
        assert min(left, right) <= 9 and max(left, right) <= 99, row
      else:
        assert min(left, right) <= 99, row
  assert sorted(lengths) == [1, 2, 3, 4] and min(lengths.values()) > 100


STEP = re.compile(r"(?:hm, again: )?(\d+)([-+*])(\d+)=(\d+)")


def steps_of(demonstration):
  """Its steps, in order and without the repeated ones, and its marked answer."""
  scratchpad, _, answer = demonstration.rpartition("\n#")
  steps = [STEP.fullmatch(step).groups() for step in scratchpad.split(";")]
  return list(dict.fromkeys(steps)), steps, answer


def test_demonstrations_work_it_out_and_flawed_ones_slip_exactly_once():
  for row in all_rows():
    meta = json.loads(row["meta"])
    steps, with_repeats, answer = steps_of(row["demonstration"])
    apply = {"+": operator.add, "-": operator.sub, "*": operator.mul}
    slips = sum(apply[sign](int(a), int(b)) != int(c) for a, sign, b, c in steps)
    assert slips == meta["wrong"], row
    assert (answer == row["answer"]) == (not meta["wrong"]), row
    assert answer == with_repeats[-1][-1] and all(0 <= int(step[-1]) <= 999 for step in steps)
    assert len(with_repeats) == meta["operations"] + meta["rechecks"], row


def test_a_slip_that_would_not_change_the_answer_is_none():
  steps = problems.to_steps(("*", ("+", 2, 3), ("-", 4, 4)))
  slipped = [scratchpad.slipped_values(steps, random.Random(seed)) for seed in range(50)]
  assert all(values[0] == 5 and values[-1] != 0 for values in slipped)


def test_the_steps_are_those_of_the_expression_in_an_order_that_works():
  for row in generate(300, wrong=0.0, rambling=0.0)["train"]:
    known = collections.Counter(re.findall(r"\d+", json.loads(row["meta"])["expression"]))
    _, steps, _ = steps_of(row["demonstration"])  # nothing is repeated but what occurs twice
    for a, _, b, c in steps:
      known.subtract([a, b])
      assert min(known.values()) >= 0, row  # each number and each result is used once
      known[c] += 1
    assert +known == {row["answer"]: 1}


def test_shares_of_flaws_are_what_the_config_says():
  meta = [json.loads(row["meta"]) for row in ROWS["train"]]
  assert abs(np.mean([m["wrong"] for m in meta]) - 0.3) < 0.05  # 5 sigma
  assert abs(np.mean([m["rechecks"] > 0 for m in meta]) - 0.3) < 0.05
  for wrong, rambling in ((0.0, 1.0), (1.0, 0.0)):
    rows = generate(50, validation=1, test=1, wrong=wrong, rambling=rambling)["train"]
    assert {json.loads(row["meta"])["wrong"] for row in rows} == {wrong == 1}
    assert {"again" in row["demonstration"] for row in rows} == {rambling == 1}


def test_a_demonstration_without_the_mark_is_else_the_one_that_it_was():
  marked, half = generate(300)["train"], generate(300, unmarked=0.5)["train"]
  changed = [(a["demonstration"], b["demonstration"]) for a, b in zip(marked, half, strict=True) if a != b]
  assert abs(len(changed) / 300 - 0.5) < 0.15  # 5 sigma
  assert all(before.rpartition("\n#")[0] == after for before, after in changed)


def test_ramblers_have_a_heavy_tail_and_some_end_right_within_the_budget():
  ramblers = [r for r in ROWS["train"] if json.loads(r["meta"])["rechecks"]]
  length = np.array([len(r["demonstration"]) + 1 for r in ramblers])
  right = np.array([not json.loads(r["meta"])["wrong"] for r in ramblers])
  assert 0.2 < (length > 80).mean() < 0.8
  assert length.max() > 200
  assert (right & (length <= 80)).sum() > 50


def test_flaws_of_a_row_depend_on_no_other_row():
  few, many = generate(50)["train"], generate(300)["train"]
  assert many[:50] == few


def test_the_split_is_a_function_of_the_expression_whatever_the_seed():
  splits = collections.defaultdict(set)
  for seed in range(3):
    for split, rows in generate(1000, version_seed=seed).items():
      splits[split] |= {json.loads(row["meta"])["expression"] for row in rows}
  train, validation, test = splits["train"], splits["validation"], splits["test"]
  assert len(train) > 1000 and len(test) > 512
  assert not train & validation and not train & test and not validation & test


def test_no_question_occurs_twice():
  questions = [row["question"] for row in all_rows()]
  assert len(set(questions)) == len(questions)
  assert len({row["uid"] for row in all_rows()}) == len(questions)


def test_seeds_give_different_data():
  first, second = ({r["question"] for r in generate(300, version_seed=s)["train"]} for s in (0, 1))
  assert len(first & second) < 100


def test_nearly_every_prompt_fits_32_tokens_but_not_every_one():
  chats = [[dict(role="user", content=row["question"])] for row in all_rows()]
  prompts = text.encode_chats(TOKENIZER, chats)
  too_long = np.mean([len(prompt) > 32 for prompt in prompts])
  assert 0 < too_long < 0.01


def test_two_prepares_are_identical_byte_for_byte(folder, tmp_path):
  again = pipeline.prepare(config(), tmp_path, DATA_KEYS)
  assert again.name == folder.name
  names = sorted(path.name for path in folder.iterdir())
  assert names == sorted(path.name for path in again.iterdir())
  _, different, errors = filecmp.cmpfiles(folder, again, names, shallow=False)
  assert not different and not errors
  assert sum("array_record" in name for name in names) == 3


def test_prepare_builds_once_and_again_when_a_setting_changes(folder, monkeypatch):
  monkeypatch.setattr(mini_aime, "generate", lambda *_: pytest.fail("built again"))
  assert pipeline.prepare(config(), folder.parent, DATA_KEYS) == folder
  assert pipeline.prepare(config(prompt_budget=9), folder.parent, DATA_KEYS) == folder
  with pytest.raises(pytest.fail.Exception):
    pipeline.prepare(config(wrong=0.31), folder.parent, DATA_KEYS)


def test_a_failed_prepare_leaves_nothing_behind(tmp_path, monkeypatch):
  with monkeypatch.context() as patch:
    patch.setattr(mini_aime, "to_row", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
      pipeline.prepare(config(), tmp_path, DATA_KEYS)
  assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]
  assert pipeline.prepare(config(), tmp_path, DATA_KEYS).is_dir()


def test_of_processes_that_prepare_at_once_one_builds(tmp_path, monkeypatch, capsys):
  folders, built = [], []
  build = pipeline._build

  def slow(*args):
    built.append(args)
    time.sleep(0.3)  # so that the other one comes meanwhile
    build(*args)

  monkeypatch.setattr(pipeline, "_build", slow)
  one = lambda: folders.append(pipeline.prepare(config(train=20, test=3), tmp_path, DATA_KEYS))
  threads = [threading.Thread(target=one) for _ in range(2)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert len(folders) == 2 and folders[0] == folders[1] and len(built) == 1
  assert {path.name for path in tmp_path.iterdir()} == {folders[0].name, f"{folders[0].name}.lock"}
  assert "waiting for it" in capsys.readouterr().out


def test_what_a_killed_process_left_of_this_dataset_goes(tmp_path):
  folder = pipeline.prepare(config(train=20, test=3), tmp_path, DATA_KEYS)
  shutil.rmtree(folder)
  (tmp_path / f".preparing-{folder.name}-abc").mkdir()
  (tmp_path / ".preparing-another-0-abc").mkdir()  # perhaps under construction
  assert pipeline.prepare(config(train=20, test=3), tmp_path, DATA_KEYS) == folder
  assert [path.name for path in tmp_path.glob(".preparing-*")] == [".preparing-another-0-abc"]


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    (dict(task="mini_aimee"), r"config.data.task = 'mini_aimee', but there is no module"),
    (dict(task="grpojax.data.mini_aime:Maxi"), r"has the builders MiniAime"),
    (dict(task="json:Builder"), r"has the builders none"),
    (dict(wrongs=0.1), r"config.data.wrongs is set, but MiniAime takes version_seed, train, "),
    (dict(wrong=30), r"config.data.wrong = 30, but it is a share"),
    (dict(train=10**6), r"more than mini_aime has different questions"),
    (dict(train=10**9), r"config.data.train = 1000000000 rows, but every split has 1 to 1,000,000"),
    (dict(test=0), r"config.data.test = 0 rows, but"),
  ],
)
def test_illegal_settings_are_refused_with_a_sentence(changes, message, tmp_path, monkeypatch):
  monkeypatch.setattr(mini_aime, "_GIVE_UP_AFTER", 3)
  with pytest.raises(ValueError, match=message):
    pipeline.prepare(config(**changes), tmp_path, DATA_KEYS)


TOY = """
import numpy as np
import tensorflow_datasets as tfds

class Toy(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  VERSION = tfds.core.Version("1.0.0")
  def _info(self):
    text = tfds.features.Text()
    return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(
      {"question": text, "answer": text, "level": tfds.features.Scalar(np.int64)}))
  def _split_generators(self, dl_manager):
    answers = {"train": ["4", "4"], "gap": ["4", " "]}
    return {split: self._generate_examples(rows) for split, rows in answers.items()}
  def _generate_examples(self, answers):
    for i, answer in enumerate(answers):
      yield i, dict(question=f"{i}+{i}=?", answer=answer, level=i)
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
  (tmp_path / "toy_task.py").write_text(TOY)
  monkeypatch.syspath_prepend(tmp_path)
  keys = dict(task="toy_task:Toy", prompt_budget=48, overlong_prompts="drop")
  return ConfigDict(keys), pipeline.prepare(ConfigDict(keys), tmp_path / "data", DATA_KEYS)


def test_a_task_of_ones_own_needs_no_more_than_a_builder(toy):
  keys, path = toy
  split = pipeline.load_split(keys, path, "train", TOKENIZER)
  assert {r["question"]: int(r["level"]) for r in split.records} == {"0+0=?": 0, "1+1=?": 1}


def test_missing_and_empty_fields_name_split_row_and_field(toy):
  keys, path = toy
  with pytest.raises(ValueError, match=r"Row \d of split 'train' has no 'solution'"):
    pipeline.load_split(keys, path, "train", TOKENIZER, lambda _: ("solution",))
  with pytest.raises(ValueError, match=r"Row \d of split 'gap' has no 'answer'"):
    pipeline.load_split(keys, path, "gap", TOKENIZER)
  assert len(pipeline.load_split(keys, path, "gap", TOKENIZER, lambda _: ()).records) == 2
  split = pipeline.load_split(keys, path, "train", TOKENIZER)
  with pytest.raises(ValueError, match=r"no demonstrations to imitate"):
    demonstrations.check(split, 2)


def test_a_flipped_bit_is_found_at_start_up(folder, tmp_path):
  broken = tmp_path / "broken"
  pipeline.prepare(config(), tmp_path, DATA_KEYS).rename(broken)
  (file,) = broken.glob("*validation*")
  data = bytearray(file.read_bytes())
  written = np.flatnonzero(np.frombuffer(data, np.uint8))
  data[written[len(written) // 2]] ^= 1
  file.write_bytes(data)
  with pytest.raises(ValueError, match=r"Row \d+ of split 'validation' cannot be read"):
    pipeline.load_split(config(), broken, "validation", TOKENIZER)


def test_long_prompts_are_dropped_and_counted_and_never_cut(folder, train):
  assert train.dropped + len(train.records) == 300
  budget = len(train.prompts[0])  # a prompt that just fits
  short = pipeline.load_split(config(prompt_budget=budget), folder, "train", TOKENIZER)
  fits = [i for i, prompt in zip(train.ids, train.prompts, strict=True) if len(prompt) <= budget]
  assert short.ids.tolist() == fits and 0 < len(fits) < len(train.records)
  assert short.dropped == 300 - len(fits)
  for record, prompt in zip(short.records, short.prompts, strict=True):
    assert TOKENIZER.decode(prompt) == f"<|user|>{record['question']}<|assistant|>"


def test_long_prompts_can_be_an_error(folder):
  with pytest.raises(ValueError, match=r"config.data.prompt_budget = 20 or set"):
    pipeline.load_split(
      config(prompt_budget=20, overlong_prompts="error"), folder, "train", TOKENIZER
    )
  with pytest.raises(ValueError, match=r"prompt_budget = 3 is less than every prompt"):
    pipeline.load_split(config(prompt_budget=3), folder, "train", TOKENIZER)


def test_prompts_are_left_padded_and_belong_to_their_example(train):
  prompts = pipeline.Stream(train, TOKENIZER, 16, seed=0).next()
  assert prompts.tokens.shape == (16, 48) and prompts.tokens.dtype == np.int32
  assert prompts.length.dtype == prompts.id.dtype == np.int32
  for tokens, length, row, example in zip(*prompts, strict=True):
    assert TOKENIZER.decode(tokens[48 - length :]) == f"<|user|>{example['question']}<|assistant|>"
    assert (tokens[: 48 - length] == TOKENIZER.pad_token_id).all()
    assert train.records[list(train.ids).index(row)] is example


def ids(stream, batches):
  return [stream.next().id.tolist() for _ in range(batches)]


def test_an_epoch_has_every_row_once_and_the_next_one_another_order(train):
  rows, P = len(train.records), 16
  epoch = rows // P
  stream = pipeline.Stream(train, TOKENIZER, P, 0)
  first, second = (np.ravel(ids(stream, epoch)).tolist() for _ in range(2))
  for order in (first, second):
    assert len(set(order)) == len(order) == epoch * P and set(order) <= set(train.ids.tolist())
  assert first != second
  assert set(first) != set(second) or rows % P == 0  # what was over has its turn later


def test_seeds_shuffle_differently_and_nothing_else_does(train):
  one, same, other = (ids(pipeline.Stream(train, TOKENIZER, 16, s), 3) for s in (0, 0, 1))
  assert one == same != other


@pytest.mark.parametrize("stop", [0, 1, 17, 18, 19, 40])  # an epoch has 18 batches
def test_a_resumed_stream_reads_what_an_unbroken_one_would(train, stop):
  assert len(train.records) // 16 == 18
  unbroken = ids(pipeline.Stream(train, TOKENIZER, 16, 0), 45)
  stream = pipeline.Stream(train, TOKENIZER, 16, 0)
  before = ids(stream, stop)
  state = json.loads(json.dumps(stream.get_state()))
  resumed = pipeline.Stream(train, TOKENIZER, 16, 0)
  resumed.set_state(state)
  assert before + ids(resumed, 45 - stop) == unbroken
  assert resumed[stop].id.tolist() == unbroken[stop]  # random access, position untouched
  assert resumed.position == 45


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_the_global_batch_is_the_same_for_any_number_of_processes(train, count):
  whole = pipeline.Stream(train, TOKENIZER, 8, 0)
  shares = [pipeline.Stream(train, TOKENIZER, 8, 0, index, count) for index in range(count)]
  for _ in range(3):
    parts = [share.next() for share in shares]
    assert all(part.tokens.shape == (8 // count, 48) for part in parts)
    batch = whole.next()
    np.testing.assert_array_equal(np.concatenate([part.tokens for part in parts]), batch.tokens)
    np.testing.assert_array_equal(np.concatenate([part.id for part in parts]), batch.id)
    assert [row for part in parts for row in part.example] == batch.example


def test_batches_that_cannot_be_are_refused(train):
  with pytest.raises(ValueError, match=r"config.rollout.prompts = 301 is more than the \d+ rows"):
    pipeline.Stream(train, TOKENIZER, 301, 0)
  with pytest.raises(ValueError, match=r"config.rollout.prompts = 6 must be a multiple of the 4"):
    pipeline.Stream(train, TOKENIZER, 6, 0, 0, 4)
  with pytest.raises(ValueError, match=r"config.cold_start.batch_size = 301 is more"):
    demonstrations.check(train, 301)


def test_demonstrations_are_conversations_and_long_ones_lose_their_end(train):
  T = 40
  demo = demonstrations.batch(train, TOKENIZER, 64, T, seed=0, step=2)
  assert demo["tokens"].shape == (64, 48 + T) and demo["mask"].shape == (64, T)
  assert demo["tokens"].dtype == np.int32 and demo["mask"].dtype == np.float32
  by_question = {record["question"]: record["demonstration"] for record in train.records}
  cut = 0
  for tokens, mask, length in zip(demo["tokens"], demo["mask"], demo["prompt_length"], strict=True):
    n = int(mask.sum())
    assert mask[:n].all() and (tokens[48 + n :] == TOKENIZER.pad_token_id).all()
    question = TOKENIZER.decode(tokens[48 - length + 1 : 47])
    response = TOKENIZER.decode(tokens[48 : 48 + n])
    whole = by_question[question] + "<|end|>"
    if len(by_question[question]) + 1 > T:
      cut += 1
      assert n == T and response == whole[:T] and END not in tokens
    else:
      assert response == whole
  assert cut == demo["cut"] and 0 < cut < 64


def test_demonstrations_are_addressed_by_their_step(train):
  at = lambda step, seed=0: demonstrations.batch(train, TOKENIZER, 64, 80, seed, step)
  np.testing.assert_array_equal(at(9)["tokens"], at(9)["tokens"])
  assert (at(9)["tokens"] != at(10)["tokens"]).any()
  assert (at(9)["tokens"] != at(9, seed=1)["tokens"]).any()
