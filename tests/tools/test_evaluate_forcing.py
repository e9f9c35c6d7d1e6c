"""Budget forcing: who is cut and where, what goes on behind it, and what the levels are worth."""

import html
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from test_evaluate_benchmark import tiny

from grpojax.tools.evaluate import benchmark, command, curves, forcing
from grpojax.tools.evaluate.forcing import Forcing, Level

FORCING = Forcing(budgets=(3,), waits=1, end=(7, 8), closing=(5, 6), wait=(9,))
EOS = 1
BUDGETS, WAITS = [2, 5], 2


def test_who_still_thinks_is_cut_at_the_budget():
  """Who has closed its thinking by then, or has ended, is not; half a closing closes nothing."""
  answers = {
    "thinks": [2, 2, 2, 2, EOS],
    "closed": [5, 6, 2, 2, EOS],
    "halfway": [2, 2, 5, 6, EOS],
    "short": [2, 2, EOS],
  }
  assert forcing.cut(FORCING, 3, answers) == {"thinks": [2, 2, 2, 7, 8], "halfway": [2, 2, 5, 7, 8]}
  assert set(forcing.cut(FORCING._replace(closing=()), 3, answers)) == {"thinks", "closed", "halfway"}


def test_what_goes_on_has_lost_the_end_of_its_thinking():
  answers = {"closed": [2, 5, 6, 3, EOS], "twice": [5, 6, 2, 5, 6, EOS], "open": [2, 2, EOS]}
  assert forcing.keep_on(FORCING, answers) == {"closed": [2, 9], "twice": [5, 6, 2, 9], "open": [2, 2, 9]}


def settings(cache, temperature=1.0):
  """A policy of a few cold-start steps, of which some answers end and some do not."""
  words = {"interruption.text": "7", "interruption.unless": "5"}
  return tiny(cache, **words, **{"eval.temperature": temperature, "eval.samples": 2, "eval.max_tokens": 40})


def answer(cache, out, budgets, waits, limit, **how):
  job = benchmark.prepare(settings(cache, **how), "", [], limit=limit)
  asked = forcing.prepare(job, budgets, waits, "8")
  params, done = benchmark.begin(job, out)
  answered = benchmark.run(job, out, params, done)
  return job, asked, out, params, answered, forcing.run(job, asked, out, params, answered)


@pytest.fixture(scope="module")
def forced(cache, tmp_path_factory):
  return answer(cache, tmp_path_factory.mktemp("forced"), BUDGETS, WAITS, 12)


def each(levels, name):
  """Yields (suite, question, sample, the free answer's sample, the level's) of all answers."""
  free, level = levels[0], next(level for level in levels if level.name == name)
  for suite, items in level.items.items():
    for q, (before, after) in enumerate(zip(free.items[suite], items, strict=True)):
      for i, pair in enumerate(zip(before["samples"], after["samples"], strict=True)):
        yield (suite, q, i, *pair)


def test_cut_answers_begin_as_the_free_ones_and_all_others_are_these(forced):
  job, asked, *_, levels = forced
  assert [level.name for level in levels] == ["as it ends", "cut at 2", "cut at 5", "1 x wait", "2 x wait"]
  cut = 0
  for budget, level in zip(BUDGETS, levels[1:3], strict=True):
    for suite, q, i, free, new in each(levels, level.name):
      thinks = free["length"] > budget and forcing.last(asked.closing, free["tokens"][:budget]) is None
      assert level.injected[suite][q, i] == len(asked.end) * thinks
      if not thinks:
        assert new == free
        continue
      cut += 1
      assert new["tokens"][: budget + len(asked.end)] == [*free["tokens"][:budget], *asked.end]
      assert budget + len(asked.end) < new["length"] == len(new["tokens"]) <= job.config.eval.max_tokens
      assert new["right"] == (None if new["length"] % 5 == 0 else new["length"] % 2 == 0)  # of the whole
  assert cut > 6


def test_waits_go_on_behind_each_other_and_only_where_an_answer_had_ended(forced):
  job, asked, *_, levels = forced
  waited, before = 0, levels[0]
  for number, level in enumerate(levels[3:], 1):
    for suite, q, i, _, new in each(levels, level.name):
      old = before.items[suite][q]["samples"][i]
      if not old["ended"]:
        assert new == old
        continue
      waited += 1
      closed = forcing.last(asked.closing, old["tokens"])
      kept = old["tokens"][: len(old["tokens"]) - 1 if closed is None else closed]
      assert new["tokens"][: len(kept) + 1] == [*kept, *asked.wait]
      assert level.injected[suite][q, i] - before.injected[suite][q, i] == len(asked.wait) == 1
      assert new["length"] <= number * (job.config.eval.max_tokens + 1) + job.config.eval.max_tokens
    before = level
  assert waited > 2


def test_what_goes_on_is_what_the_policy_says_behind_those_tokens(cache, tmp_path):
  """Greedy: a forward pass over prompt and answer has each token behind the cut on top."""
  job, asked, _, params, _, levels = answer(cache, tmp_path, [5], 0, 6, temperature=0.0)
  questions = {suite.name: suite.questions for suite in job.suites}
  whole, first, seen = job.config.data.prompt_budget + 40, 5 + len(asked.end), 0

  @jax.jit
  def likeliest(tokens):
    decoder = job.model.bind(params)
    return decoder.logits(decoder(tokens, np.zeros(1, np.int32))).argmax(-1)

  for suite, q, _, free, new in each(levels, "cut at 5"):
    if new != free:
      prompt = questions[suite].prompts[q].tolist()
      row = np.pad([*prompt, *new["tokens"]], (0, whole - len(prompt) - new["length"]))
      top = np.asarray(likeliest(row[None]))[0, len(prompt) - 1 :]
      assert top[first : new["length"]].tolist() == new["tokens"][first:]
      seen += 1
  assert seen > 3


def test_a_stopped_run_goes_on_and_another_text_is_refused(forced, cache):
  job, asked, out, params, answered, levels = forced
  files = sorted((out / forcing.FOLDER).rglob("items.jsonl"))
  assert len(files) == 4
  whole = {file: file.read_bytes() for file in files}
  files[0].write_bytes(whole[files[0]].splitlines(keepends=True)[0])
  files[-1].unlink()
  again = forcing.run(job, asked, out, params, answered)
  assert sorted(files[0].read_bytes().splitlines()) == sorted(whole[files[0]].splitlines())
  assert files[-1].read_bytes() == whole[files[-1]]
  for one, other in zip(levels, again, strict=True):
    assert one.items == other.items
  with pytest.raises(ValueError, match="has changed; choose another --out"):
    forcing.run(job, asked._replace(end=asked.wait), out, params, answered)


def toy(name, right, length, injected):
  """A level of two questions with two answers each."""
  items = [
    dict(samples=[dict(right=r, length=n) for r, n in zip(rs, ns, strict=True)])
    for rs, ns in zip(right, length, strict=True)
  ]
  return Level(name, {"test": items}, {"test": np.array(injected)})


def test_levels_have_means_over_questions_and_the_change_is_paired(tmp_path):
  after = [
    toy("as it ends", [[True, False], [True, True]], [[4, 6], [8, 10]], [[0, 0], [0, 0]]),
    toy("cut at 4", [[True, None], [False, True]], [[4, 6], [6, 6]], [[0, 2], [2, 2]]),
  ]
  before = [level._replace(items={"test": list(reversed(level.items["test"]))}) for level in after]
  free, cut = forcing.of_suite(after, None, "test")
  assert free["after"]["accuracy"]["value"] == 0.75 and cut["after"]["accuracy"]["value"] == 0.5
  assert free["after"]["tokens"] == dict(value=7.0, low=5.0, high=9.0)
  assert (cut["after"]["tokens"]["value"], cut["after"]["injected"]["value"]) == (5.5, 1.5)
  same = forcing.of_suite(after, after, "test")
  assert same[0]["change"]["accuracy"] == dict(value=0.0, low=0.0, high=0.0)
  compared = forcing.of_suite(after, before, "test")
  assert compared[0]["change"]["accuracy"] == dict(value=0.0, low=-0.5, high=0.5)

  samples = [dict(right=True, answer="1"), dict(right=False, answer="2")]
  suite = curves.of_suite([dict(id=str(i), samples=samples) for i in range(2)], None)
  found = dict(command="grpojax evaluate", checkpoint="runs/x", before=None)
  page = curves.write(tmp_path, found | dict(suites={"test": suite | dict(forced=[free, cut])}))
  shown = html.unescape(page.read_text())
  assert "test: accuracy against tokens" in shown and "5.5, 1.5 injected" in shown
  assert len(curves.tables(json.loads((tmp_path / "curves.json").read_text()))) == 2


@pytest.mark.parametrize(
  ("flags", "sentence"),
  [
    (dict(CURVES=False), "--budgets and --waits are of the curves; give --curves too"),
    (dict(BUDGETS=["-4"]), "--budgets=-4 has tokens, comma-separated"),
    (dict(BUDGETS=["39"]), r"--budgets has 39, and with config.eval.max_tokens = 40 and the 1 tokens of"),
    (dict(WAIT=""), r"--wait = '' is empty or has a token that ends an answer"),
  ],
)
def test_what_cannot_be_forced_is_refused(cache, monkeypatch, flags, sentence):
  given = dict(CURVES=True, BEFORE=None, BEST_OF="", BUDGETS=["2"], WAITS=1, WAIT="8", OUT=None, LIMIT=2)
  given |= dict(CHECKPOINT="", SUITE=[]) | flags
  for name, value in given.items():
    monkeypatch.setattr(command, name, SimpleNamespace(value=value))
  with pytest.raises(ValueError, match=sentence):
    command.prepare(settings(cache))


def test_a_folder_of_older_answers_is_refused(cache, tmp_path):
  job = benchmark.prepare(settings(cache), "", [], limit=2)
  params, done = benchmark.begin(job, tmp_path)
  benchmark.run(job, tmp_path, params, done)
  file = tmp_path / "items.jsonl"
  lines = [json.loads(line) for line in file.read_text().splitlines()]
  for item in lines:
    for sample in item["samples"]:
      del sample["tokens"]
  file.write_text("".join(json.dumps(item) + "\n" for item in lines))
  with pytest.raises(ValueError, match="has answers without their tokens; choose another --out"):
    benchmark.begin(job, tmp_path)


