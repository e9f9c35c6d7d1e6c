"""The studies of a real model: rows, tasks, control; what evaluations sum to; as run, on a random model."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
import small_real_model
import subprocesses
import test_local

from experiments.real_model import __main__ as program
from experiments.real_model import evaluation, studies, suites, tables, tasks
from experiments.real_model.control import stated_in_time
from experiments.real_model.evaluation import Evaluation
from grpojax.config import check
from grpojax.data.local import generators
from grpojax.recipes import smollm2
from grpojax.rewards import Sample, reasoning_gym
from grpojax.tools.study import plan

TRANSFER, PASS_AT_K = program.EVALUATIONS.values()


def planned(study, out, seeds=1):
  return plan.make(study, out, seeds, [], [])


def test_every_row_is_the_real_models_config_with_another_task_recipe_or_setting(tmp_path):
  own = smollm2.get_config()
  for study in studies.recipes(), studies.settings():
    for run in planned(study, tmp_path):
      c = run.config
      assert (c.steps, c.model.path, c.rollout.max_tokens) == (
        own.steps,
        own.model.path,
        own.rollout.max_tokens,
      )
      ten = 10 if c.lora.rank else 1
      assert c.optimizer.learning_rate == pytest.approx(ten * own.optimizer.learning_rate)
      (name,) = c.data.test
      assert c.data.test[name].task == c.data.task and c.data.test[name].knobs == c.data.knobs
  check.check(suites.get_config(), 1)


def test_every_task_is_trained_on_by_every_recipe_and_the_first_with_every_setting(tmp_path):
  rows = studies.recipes().rows
  assert [(row.group, row.name) for row in rows] == [(t, r) for t in tasks.TASKS for r in studies.RECIPES]
  assert (
    len(tasks.TASKS) == 5 and len({run.config.data.task for run in planned(studies.recipes(), tmp_path)}) == 5
  )
  made = {run.row.name: run.config for run in planned(studies.settings(), tmp_path)}
  assert {c.data.task for c in made.values()} == {"reasoning_gym:chain_sum"}
  assert [name for name, c in made.items() if c.lora.rank] == ["adapters, 10 x the learning rate"]
  assert {c.model.dtype for name, c in made.items() if "bfloat16" in name} == {"bfloat16"}
  in_int8 = {name: list(c.objective.correct) for name, c in made.items() if c.rollout.weights == "int8"}
  assert len(in_int8) == 5 and in_int8["int8, none"] == [] and in_int8["int8, TIS"] == ["tis"]
  paid = {name: slot.get("weight", 1.0) for name, slot in made["form alone"].reward.items()}
  assert paid == {"accuracy": 0.0, "form": 1.0}


def test_the_plan_says_what_three_seeds_can_detect_before_anything_runs(monkeypatch, capsys, tmp_path):
  flags = ["--dry_run", f"--out={tmp_path}"]
  monkeypatch.setattr(sys, "argv", ["real_model", *flags])
  program.main()
  said = capsys.readouterr().out
  assert said.count("3 seeds tell a difference of 12.4 points from nothing") == 2
  assert "20 rows x 3 seeds = 60 runs" in said and "10 rows x 3 seeds = 30 runs" in said
  assert "transfer: 0 of 60 runs are finished; 1 evaluations to do, 5,120 completions" in said
  assert not list(tmp_path.iterdir())
  monkeypatch.setattr(sys, "argv", ["real_model", "--only=recipes,transfers"])
  with pytest.raises(ValueError, match="--only has 'transfers', and the parts are recipes, settings"):
    program.main()


@pytest.mark.parametrize(
  "text, ended, paid",
  [("It is 7.", True, 1), ("It is 7.", False, 0), ("I do not know.", True, 0), ("9 is wrong", True, 1)],
)
def test_the_control_pays_for_an_answer_in_time_right_or_wrong(text, ended, paid):
  assert stated_in_time(Sample(text, {"answer": "8"}, 5, ended), form="number") == paid


@pytest.mark.slow
@pytest.mark.parametrize("name", tasks.TASKS)
def test_a_tasks_gold_answers_are_numbers_that_its_verifier_accepts_and_none_is_common(name):
  task = tasks.TASKS[name]
  drawn = generators.read("config.data", task["task"], task["knobs"], tasks.DRAWN, 1_000_000)
  examples = [generators.to_example(row) for _, row in drawn]
  samples = [Sample(f"It is {example['answer']}.", example, 5, True) for example in examples]
  assert set(reasoning_gym.verdict(samples, form="number", timeout=60.0)) == {1.0}
  golds = [example["answer"] for example in examples]
  assert max(map(golds.count, golds)) / len(golds) < 0.2
  assert len({example["question"] for example in examples}) >= TRANSFER.questions


# What evaluations sum to.


def leave(one: Evaluation, right: dict[str, list[int]], answered=1.0) -> None:
  """Leaves what an evaluation of two samples a question leaves: {suite: [right answers a question]}."""
  one.out.mkdir(parents=True)
  value = lambda x: dict(value=x, low=x, high=x)
  found, items = {}, []
  for suite, counts in right.items():
    pass1, pass2 = sum(counts) / 2 / len(counts), sum(c > 0 for c in counts) / len(counts)
    numbers = dict(zip(("pass@1", "pass@2"), map(value, (pass1, pass2)), strict=True))
    numbers |= dict(answered=value(answered), clipped_ratio=value(0.25))
    found[suite] = dict(questions=len(counts), samples=2, metrics=numbers)
    items += [dict(suite=suite, id=str(i), answer="7" if i else "8") for i in range(len(counts))]
  (one.out / "items.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items))
  (one.out / "summary.json").write_text(json.dumps(dict(suites=found)))


def finished(tmp_path, monkeypatch, seeds=2):
  """The runs of the first two rows, which count as finished."""
  runs = plan.make(studies.recipes(), tmp_path / "recipes", seeds, ["1", "2"], [])
  monkeypatch.setattr(plan, "is_done", lambda run: True)
  return runs


def test_transfer_is_the_change_from_before_of_every_suite_paired_with_nothing(tmp_path, monkeypatch):
  runs = finished(tmp_path, monkeypatch)
  todo = evaluation.evaluations(TRANSFER, runs, tmp_path, [])
  leave(todo[0], {"sums": [0, 1, 0, 1], "legs": [2, 2, 2, 2]}, answered=0.5)
  for one, sums in zip(todo[1:], ([2, 2, 2, 2], [0, 0, 0, 0], [2, 2, 2, 0], [2, 2, 0, 0]), strict=True):
    leave(one, {"sums": sums, "legs": [2, 2, 0, 0]})
  found = tables.collect(TRANSFER, todo, ["x, seed 2"])
  assert (found["questions"], found["samples"]) == (4, 2)
  grpo, dapo = found["rows"]
  assert (grpo["trained_on"], grpo["recipe"], grpo["seeds"]) == ("sums", "grpo", [0, 1])
  assert grpo["change"]["sums"]["pass@1"]["values"] == [0.75, 0.5]  # seed 0, seed 1 of row 1
  assert dapo["change"]["sums"]["pass@1"]["values"] == [-0.25, 0.25]
  assert grpo["change"]["legs"]["pass@1"]["mean"] == -0.5
  assert grpo["change"]["sums"]["answered"]["mean"] == 0.5
  assert found["before"]["sums"]["commonest"] == 0.75
  text = tables.markdown(TRANSFER, found)
  assert "| sums | 25.0 | 50.0 | 25.0 | 75.0 |" in text  # pass@1, answered, clipped, commonest
  assert "| sums | grpo | sums | 87.5 [75.0, 100.0] |" in text and "Missing: x, seed 2." in text
  tables.write(tmp_path, TRANSFER, found)
  first = (tmp_path / "transfer" / "results.json").read_bytes()
  tables.write(tmp_path, TRANSFER, tables.collect(TRANSFER, todo, ["x, seed 2"]))
  assert (tmp_path / "transfer" / "results.json").read_bytes() == first


def test_pass_at_k_is_drawn_of_every_task_before_and_after(tmp_path, monkeypatch):
  todo = evaluation.evaluations(PASS_AT_K, finished(tmp_path, monkeypatch, 1), tmp_path, [])
  leave(todo[0], {"sums": [0, 1], "legs": [2, 2]})
  for one in todo[1:]:
    leave(one, {"sums": [1, 1]})
  found = tables.collect(PASS_AT_K, todo, [])
  assert found["rows"][0]["change"]["sums"]["pass@2"] == dict(values=[0.5], mean=0.5, low=None, high=None)
  tables.write(tmp_path, PASS_AT_K, found)
  assert (tmp_path / "pass_at_k" / "pass_at_k.png").read_bytes().startswith(b"\x89PNG")
  assert "| sums | grpo | sums | 50.0 | 100.0 |" in (tmp_path / "pass_at_k" / "table.md").read_text()


def test_an_evaluation_asks_its_own_task_or_all_and_is_done_when_its_summary_is_whole(tmp_path, monkeypatch):
  run = finished(tmp_path, monkeypatch, 1)[0]
  (_, own), (before, every) = (
    evaluation.evaluations(part, [run], tmp_path, ["--config.seed=3"]) for part in (PASS_AT_K, TRANSFER)
  )
  assert f"--checkpoint={run.workdir}" in own.command and "--suite=sums" in own.command
  assert not any(word.startswith("--suite") for word in every.command)
  assert not any(word.startswith("--checkpoint") for word in before.command)
  assert every.command.index("--config.seed=3") < every.command.index(f"--out={every.out}")
  assert not evaluation.is_done(every)
  leave(every, {"sums": [1]})
  assert evaluation.is_done(every)
  os.truncate(every.out / "summary.json", 20)
  assert not evaluation.is_done(every)


# As a person runs it, on a model of random weights.


@pytest.fixture(scope="module")
def command(tmp_path_factory):
  folder = test_local.make_folder(tmp_path_factory.mktemp("model") / "qwen")
  cache = subprocesses.cache_in(tmp_path_factory.mktemp("cache"))
  sizes = {
    "model.path": folder, "cache_dir": cache, "steps": 2, "verbose": False, "data.rows": 40,
    "data.prompt_budget": 320, "rollout.prefill_chunk": 320, "rollout.prompts": 16, "microbatches": 4,
    "rollout.group_size": 4, "rollout.max_tokens": 16, "rollout.slots": 64, "eval.prompts": 4,
    "eval.samples": 4, "eval.every": 2, "checkpoint.every": 1, "optimizer.learning_rate": 0.1,
    "reward.accuracy.fn": "study_toys:coin",  # random weights are never right, and would stay what they are
  }  # fmt: skip
  flags = [f"--config.{key}={value}" for key, value in sizes.items()]
  flags += ["--config.mesh.data=1"]
  return lambda out, *more: ["small_real_model", "--seeds=1", f"--out={out}", *flags, *more]


@pytest.fixture
def run_here(command, monkeypatch, quick_studies):
  """Returns run(out, *words): what it trains in this process, and each of its evaluations in a fork."""

  def evaluate(one, environment):
    subprocesses.ended_well([subprocesses.run_one(*one.command[2:])])
    return one

  def run(*words):
    monkeypatch.setattr(sys, "argv", command(*words))
    program.main()

  monkeypatch.setattr(program, "EVALUATIONS", small_real_model.EVALUATIONS)
  monkeypatch.setattr(evaluation, "_run", evaluate)
  return run


@pytest.mark.slow
def test_a_study_that_is_killed_in_an_evaluation_goes_on_to_the_same_bytes(command, run_here, tmp_path):
  row, transfer = "--rows=sums: grpo", "--only=transfer"
  whole, broken = tmp_path / "whole", tmp_path / "broken"
  run_here(whole, "--only=recipes,transfer,pass_at_k", row)
  for done in "recipes", "transfer/after":
    shutil.copytree(whole / done, broken / done)
  words = [sys.executable, "-m", *command(broken, transfer, row)]
  killed = subprocess.Popen(words, env=subprocesses.environment(), stdout=subprocess.DEVNULL)
  items = broken / "transfer" / "before" / "items.jsonl"
  end = time.monotonic() + 600
  while not (items.exists() and items.read_bytes().count(b"\n") >= 8):
    assert time.monotonic() < end and killed.poll() is None
    time.sleep(0.05)
  killed.kill()  # and with it the evaluation that it started
  killed.wait()
  subprocesses.ended_well([subprocesses.run_one(*command(broken, transfer, row))])
  texts = [(out / "transfer" / "results.json").read_text() for out in (whole, broken)]
  assert texts[0] == texts[1]
  found = json.loads((whole / "pass_at_k" / "results.json").read_text())
  (row,) = found["rows"]
  assert list(found["before"]) == list(tasks.TASKS) and set(row["after"]) == {"sums"}
  assert row["change"]["sums"]["mean_length"]["mean"] != 0  # the trained policy was asked


@pytest.mark.slow
def test_every_kind_of_setting_trains(run_here, tmp_path):
  rows = "adapters, 10 x the learning rate", "bfloat16, TIS", "int8, TIS", "form alone"
  numbers = [str(1 + [row.name for row in studies.settings().rows].index(name)) for name in rows]
  run_here(tmp_path, "--only=settings", f"--rows={','.join(numbers)}")
  found = json.loads((tmp_path / "settings" / "results.json").read_text())
  assert [row["name"] for row in found["rows"]] == list(rows) and not found["missing"]
  gaps = {name: found["curves"][name]["sampling/sampling_logp_difference/mean"]["values"][0] for name in rows}
  assert max(gaps["form alone"]) < 1e-4  # which samples in full precision
  assert all(min(gaps[name]) > 10 * max(gaps["form alone"]) for name in ("bfloat16, TIS", "int8, TIS"))
