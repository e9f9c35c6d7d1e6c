"""The command that measures a checkpoint: items, resume, refusals, and the same numbers by any road."""

import itertools
import json
import os
from pathlib import Path

import data_toys
import jax
import numpy as np
import optax
import pytest
import subprocesses
from model_folders import mesh
from test_local import make_folder

from grpojax import models
from grpojax.learner.state import create
from grpojax.models import hf
from grpojax.recipes import base
from grpojax.runtime import checkpointer, lock
from grpojax.tools import export
from grpojax.tools.evaluate import benchmark, items, policy, suites, summary


def even(sample):
  """A verdict that a random policy meets now and then; none where the length is a multiple of 5."""
  return None if sample.length % 5 == 0 else sample.length % 2 == 0


def short(sample):
  """Prefers short completions, and abstains at times."""
  return None if sample.length % 3 == 0 else -sample.length


def tiny(cache, **changes):
  config = base.get_config("tiny")
  config.update(cache_dir=str(cache), verbose=False)
  config.mesh.data = 1
  config.reward.accuracy = dict(fn=f"{__name__}:even")
  with config.unlocked():
    config.update_from_flattened_dict(changes)
  return config


@pytest.fixture(scope="module")
def whole(cache, tmp_path_factory):
  """(job, folder, parameters, items by suite) of an evaluation that nothing stopped."""
  job = benchmark.prepare(tiny(cache), "", [], limit=6)
  out = tmp_path_factory.mktemp("whole")
  params, done = benchmark.begin(job, out)
  assert not done
  return job, out, params, benchmark.run(job, out, params, done)


def lines(out):
  return sorted((out / "items.jsonl").read_text().splitlines())


def test_every_question_has_its_line_and_every_answer_its_verdict(whole):
  job, out, _, answered = whole
  assert {name: len(of_suite) for name, of_suite in answered.items()} == {"test": 6, "validation": 6}
  stored = [json.loads(line) for line in (out / "items.jsonl").read_text().splitlines()]
  assert stored == [*answered["test"], *answered["validation"]]
  verdicts = []
  for item, record in zip(stored, [r for s in job.suites for r in s.questions.records], strict=True):
    assert (item["question"], item["answer"], item["n"]) == (record["question"], record["answer"], 4)
    for sample in item["samples"]:
      expected = None if sample["length"] % 5 == 0 else sample["length"] % 2 == 0
      assert sample["right"] is expected
      assert sample["ended"] or sample["length"] == 48
      verdicts.append(expected)
    assert item["correct"] == sum(sample["right"] is True for sample in item["samples"])
    assert len({sample["text"] for sample in item["samples"]}) > 1
  assert {True, False, None} <= set(verdicts)


def test_the_summary_agrees_with_enumeration(whole):
  answered = whole[3]["test"]
  seen = summary.of_suite(answered)
  right = [[sample["right"] is True for sample in item["samples"]] for item in answered]
  assert list(seen["metrics"]) == [
    "pass@1", "pass@2", "pass@4", "avg@4", "maj@4", "answered", "mean_length", "clipped_ratio",
  ]  # fmt: skip
  for k in (1, 2, 4):
    expected = np.mean([np.mean([any(s) for s in itertools.combinations(row, k)]) for row in right])
    assert seen["metrics"][f"pass@{k}"]["value"] == pytest.approx(expected)
  assert seen["metrics"]["avg@4"] == seen["metrics"]["pass@1"]
  cut = [not sample["ended"] for item in answered for sample in item["samples"]]
  assert seen["metrics"]["clipped_ratio"]["value"] == pytest.approx(np.mean(cut))
  assert seen["no_verdict"] == sum(s["right"] is None for item in answered for s in item["samples"])
  assert all(m["low"] <= m["value"] <= m["high"] for m in seen["metrics"].values())
  assert seen["metrics"]["mean_length"]["low"] < seen["metrics"]["mean_length"]["high"]


@pytest.mark.parametrize("torn", [40, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, None))])
def test_a_killed_evaluation_goes_on_to_the_same_items(whole, tmp_path, torn):
  """Killed before its third batch, its last bytes not on disk, or two thirds of all (None)."""
  job, out, _, answered = whole
  calls = []

  def dies(*args):
    calls.append(args)
    if len(calls) == 3:
      raise KeyboardInterrupt
    return job.sample(*args)

  fresh, done = benchmark.begin(job, tmp_path)
  with pytest.raises(KeyboardInterrupt):
    benchmark.run(job._replace(sample=dies), tmp_path, fresh, done)
  file = tmp_path / "items.jsonl"
  size = file.stat().st_size
  os.truncate(file, size // 3 if torn is None else size - torn)
  kept = file.read_bytes().count(b"\n")
  assert kept == 6 if torn == 0 else kept < 6

  calls.clear()
  counted = job._replace(sample=lambda *args: calls.append(args) or job.sample(*args))
  fresh, done = benchmark.begin(counted, tmp_path)
  assert len(done) == kept
  assert benchmark.run(counted, tmp_path, fresh, done) == answered
  assert len(calls) == (2 if torn == 0 else 3 if torn == 40 else 4)
  assert lines(tmp_path) == lines(out)

  calls.clear()
  assert benchmark.run(counted, tmp_path, *benchmark.begin(counted, tmp_path)) == answered
  assert not calls


def test_a_question_is_answered_alike_in_any_company(whole, cache, tmp_path):
  """Other suites, other questions of the batch: no draw knows of them.  The seed is another matter."""
  job, _, _, answered = whole
  alone = benchmark.prepare(tiny(cache), "", ["validation"], limit=3)._replace(sample=job.sample)
  assert benchmark.run(alone, tmp_path / "a", *benchmark.begin(alone, tmp_path / "a")) == {
    "validation": answered["validation"][:3]
  }
  seeded = benchmark.prepare(tiny(cache, seed=1), "", ["validation"], limit=3)._replace(sample=job.sample)
  other = benchmark.run(seeded, tmp_path / "b", *benchmark.begin(seeded, tmp_path / "b"))["validation"]
  assert all(a["samples"] != b["samples"] for a, b in zip(other, answered["validation"], strict=False))


def test_a_folder_of_other_settings_is_refused_with_what_differs(whole, cache):
  job, out, params, _ = whole
  changes = {"eval.top_p": 0.9, "eval.max_tokens": 32}
  other = benchmark.prepare(tiny(cache, **changes), "", ["test"], None)
  keys = r"\(config.eval.max_tokens: 48 -> 32, config.eval.top_p: 1.0 -> 0.9\); choose another --out"
  with pytest.raises(ValueError, match=keys):
    benchmark.begin(other, out)
  moved = benchmark.settings(job.config, policy.fingerprint(jax.tree.map(lambda x: x * 1.001, params)))
  with pytest.raises(ValueError, match=r"other settings \(fingerprint of the policy: '\w+' -> '\w+'\)"):
    items.claim(out, moved)
  job.suites[0].questions.records[0]["answer"] += "0"
  try:
    with pytest.raises(ValueError, match=r"question \w+ of test has changed; choose another --out"):
      benchmark.begin(job, out)
  finally:
    record = job.suites[0].questions.records[0]
    record["answer"] = record["answer"][:-1]


def test_the_budget_of_the_evaluation_is_its_own():
  config = base.get_config("tiny")
  config.rollout.max_tokens = 20
  assert config.eval.max_tokens == 20
  config.eval.max_tokens = 30
  assert (config.rollout.max_tokens, config.eval.max_tokens) == (20, 30)


@pytest.fixture(scope="module")
def workdir(whole, tmp_path_factory):
  """A run with two checkpoints, whose parameters are known."""
  job, _, params, _ = whole
  folder = tmp_path_factory.mktemp("run")
  (folder / "config.json").write_text(job.config.to_json_best_effort())
  checkpoints = checkpointer.open_checkpoints(folder, keep=2)
  for step in (3, 7):
    state = create(jax.tree.map(lambda x, step=step: x + step, params), optax.adam(1e-3))
    host = {"step": step, "stands_on": {"versions": {}}}
    checkpointer.save(checkpoints, step, (state, None), host)
  checkpointer.finish(checkpoints)
  checkpoints.close()
  return folder


def read(named, config):
  """(where its results go, its parameters)."""
  job = benchmark.prepare(config, str(named), ["test"], 4)
  return job.policy.results(config), policy.load(job.policy, job.config, job.model, job.mesh, None, None)


@pytest.mark.slow
def test_checkpoints_by_their_names(whole, workdir, cache, tmp_path):
  params = whole[2]
  for named, step in ((workdir, 7), (f"{workdir}@3", 3), (f"{workdir}@7", 7)):
    out, found = read(named, tiny(cache))
    assert out == workdir / "eval" / f"step_{step}"
    jax.tree.map(lambda a, b, step=step: np.testing.assert_array_equal(a, b + step), found, params)

  export.main([f"--workdir={workdir}", f"--out={tmp_path / 'mine'}", "--dtype=float32"])
  exported = hf.load(tmp_path / "mine", models.from_spec(models.from_folder(tmp_path / "mine")), mesh())
  assert policy.fingerprint(exported) == policy.fingerprint(found)
  named, config = policy.find(str(tmp_path / "mine"), tiny(cache))
  assert named.results(config) == Path("runs/eval/mine")


@pytest.mark.parametrize(
  ("named", "sentence"),
  [
    ("/nowhere", "--checkpoint=/nowhere is neither the workdir of a run"),
    ("{}@5", r"of this run the steps \[3, 7\] are saved"),
    ("{}/checkpoints", "is neither the workdir of a run"),
  ],
)
def test_what_is_no_checkpoint_is_refused(workdir, cache, named, sentence):
  with pytest.raises(ValueError, match=sentence):
    benchmark.prepare(tiny(cache), named.format(workdir), [], None)


def test_an_unknown_suite_is_refused_with_those_there_are(cache):
  with pytest.raises(ValueError, match=r"names 'tests', but config.data has .* test, validation only\."):
    benchmark.prepare(tiny(cache), "", ["test", "tests"], None)


def test_an_unknown_reward_to_pick_by_is_refused_with_those_there_are(cache):
  with pytest.raises(ValueError, match=r"--best_of names 'rm', and config.reward has accuracy\."):
    benchmark.prepare(tiny(cache), "", [], None, best_of="rm")


@pytest.mark.slow
def test_a_second_reward_scores_every_sample_and_changes_no_verdict(whole, cache, tmp_path):
  config = tiny(cache, **{"reward.short": dict(fn=f"{__name__}:short")})
  job = benchmark.prepare(config, "", ["test"], 6, best_of="short")._replace(sample=whole[0].sample)
  answered = benchmark.run(job, tmp_path, *benchmark.begin(job, tmp_path))["test"]
  samples = [sample for item in answered for sample in item["samples"]]
  assert all(s.pop("score") == (None if s["length"] % 3 == 0 else -s["length"]) for s in samples)
  assert answered == whole[3]["test"]
  alone = benchmark.prepare(config, "", ["test"], 6)
  with pytest.raises(ValueError, match=r"other settings \(config.reward.short.fn: .* -> None\)"):
    benchmark.begin(alone, tmp_path)


def test_a_fingerprint_knows_every_bit_and_its_place_but_not_the_mesh():
  rng = np.random.default_rng(0)
  params = dict(a=rng.normal(size=(8, 16)).astype(np.float32), b=np.zeros(4, np.float32))
  mine = policy.fingerprint(params)
  assert mine == policy.fingerprint(jax.tree.map(np.copy, params))
  spread = jax.sharding.NamedSharding(mesh(fsdp=2, tensor=2, expert=1), jax.P("fsdp", "tensor"))
  assert mine == policy.fingerprint(params | dict(a=jax.device_put(params["a"], spread)))
  swapped = params["a"].copy()
  swapped[[0, 5]] = swapped[[5, 0]]
  bit = params["a"].copy()
  bit.view(np.uint32)[3, 3] ^= 1
  others = [swapped, bit, params["a"].reshape(16, 8), params["a"][:, ::-1], -params["a"]]
  seen = {policy.fingerprint(params | dict(a=other)) for other in others}
  seen |= {policy.fingerprint(params | dict(b=-params["b"])), policy.fingerprint(dict(b=1, a=0) | {})}
  assert len(seen | {mine}) == 8


@pytest.mark.slow
def test_the_command_on_files_of_ones_own(cache, tmp_path):
  """Test sources alone, a folder as the checkpoint, greedy; the suite that is not named is not asked."""
  folder, twin = make_folder(tmp_path / "qwen"), make_folder(tmp_path / "twin")
  rows = [dict(prompt=f"What is {i} + {i}?", answer=str(2 * i)) for i in range(5)]
  columns = dict(layout="columns", prompt="prompt", answer="answer")
  sources = {
    name: columns | dict(path=str(data_toys.write(tmp_path / f"{name}.jsonl", rows[start:])))
    for name, start in (("all", 0), ("some", 2))
  }
  small = {
    "cache_dir": cache, "verbose": False, "rollout.prompts": 4, "rollout.max_tokens": 8,
    "data.prompt_budget": 160, "eval.samples": 2, "eval.temperature": 0, "eval.max_tokens": 6,
    "updates_per_rollout": 1, "microbatches": 1,
  }  # fmt: skip
  command = [
    "grpojax", "evaluate", "--config=configs/grpo.py:local", f"--checkpoint={folder}",
    f"--config.data.test={sources}", f"--before={twin}", "--curves",
    "--suite=some", f"--out={tmp_path / 'out'}", *(f"--config.{key}={value}" for key, value in small.items()),
  ]  # fmt: skip
  done = subprocesses.run_one(*command)
  assert done.code == 0, done.err
  assert "2 answer(s) to each of 3 questions" in done.out
  assert "all answers to a question are the same" in done.out
  assert "pass@1 = avg@2, %" in done.out and "0.0 [0.0, 0.0]" in done.out
  stored = [json.loads(line) for line in (tmp_path / "out/items.jsonl").read_text().splitlines()]
  assert {item["question"] for item in stored} == {row["prompt"] for row in rows[2:]}
  assert all(item["samples"][0] == item["samples"][1] for item in stored)
  assert all(sample["length"] <= 6 for item in stored for sample in item["samples"])
  written = json.loads((tmp_path / "out/summary.json").read_text())
  assert written["suites"]["some"]["metrics"]["pass@2"] == dict(value=0.0, low=0.0, high=0.0)
  found = json.loads((tmp_path / "out/curves.json").read_text())
  assert (found["checkpoint"], found["before"]) == (str(folder), str(twin)) and "change, points" in done.out
  assert (tmp_path / "out/before/items.jsonl").read_text() == (tmp_path / "out/items.jsonl").read_text()
  assert found["suites"]["some"]["curves"]["maj@k"]["change"]["high"] == [0.0, 0.0]
  assert "<svg" in (tmp_path / "out/curves.html").read_text()
  with lock.hold(tmp_path / "out/.lock", "the first"):  # two would append all items twice
    done = subprocesses.run_one(*command)
  assert done.code == 1 and f"--out={tmp_path}/out has an evaluation that goes on: process " in done.err


def test_what_keys_a_draw_is_the_question_and_its_suite_not_its_row(whole):
  """Another source in config.data moves the rows."""
  questions, rows = whole[0].suites[0].questions, np.arange(6)
  here = suites._suite("test", questions, rows, None)
  there = suites._suite("test", questions, rows[::-1], 4)
  assert here.questions.ids.tolist()[:1:-1] == there.questions.ids.tolist() and min(here.questions.ids) >= 0
  assert len({*here.questions.ids, *suites._suite("again", questions, rows, None).questions.ids}) == 12


def test_two_questions_of_one_name_are_refused(whole):
  questions = whole[0].suites[0].questions
  records = [record | dict(uid="same") for record in questions.records]
  with pytest.raises(ValueError, match="--suite=test: two questions have the same uid"):
    suites._suite("test", questions._replace(records=records), np.arange(2), None)
