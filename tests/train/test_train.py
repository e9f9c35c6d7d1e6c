"""The whole job at a very small size: what it leaves behind, resume, faults, Ctrl-C, many devices."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import subprocesses

from grpojax import train
from grpojax.learner import batching
from grpojax.rollout import curriculum
from grpojax.runtime import checkpointer, metrics, storage
from grpojax.train import checkpoint

pytestmark = pytest.mark.usefixtures("quick_jobs")
ROOT = Path(__file__).parents[2]


def tiny(cache, recipe="gspo", **changes):
  config = importlib.import_module(f"grpojax.recipes.{recipe}").get_config("tiny")
  config.update(cache_dir=str(cache), verbose=False, **changes)
  config.mesh.data = 1
  return config


def remembering(cache):
  """GRPO with everything that a run can remember, beside SPO's."""
  c = tiny(cache, "grpo")
  c.reference_sync.update(every=2, rate=0.5)
  c.kl_control.update(target=1e-4, horizon=100)
  c.difficulty.update(kind="ema", weighted=True, offline=4)
  c.objective.advantage = dict(fn="mixed_baseline")
  c.baseline.kind = "mean"
  c.data.train = 20
  return c


def start(config, workdir):
  train.run(train.prepare(config, workdir))
  return metrics.read(workdir)


def command(cache, workdir, *flags):
  return [
    sys.executable, "-m", "grpojax.main", "--config=configs/gspo.py:tiny", f"--workdir={workdir}",
    f"--config.cache_dir={cache}", *flags,
  ]  # fmt: skip


def comparable(records):
  """Records of RL without what a clock wrote; the cold start may have come from the cache."""
  timed = ("time/", "tokens_per_second/", "memory/", "wall")
  rl = [r for r in records if r["kind"] != "cold_start"]
  return [{k: v for k, v in r.items() if not k.startswith(timed)} for r in rl]


def final_tree(config, workdir):
  """Host copies of the newest checkpoint's (state, reference, memory)."""
  job = train.prepare(config, workdir)
  checkpoints = checkpointer.open_checkpoints(workdir, config.checkpoint.keep)
  tree, host = checkpointer.latest(checkpoints, *checkpoint.tree_layout(job))
  checkpoints.close()
  return jax.tree.map(np.asarray, tree), host


def alone(words) -> subprocesses.Ended:
  """A process that imports everything itself, and compiles as users do."""
  own = subprocesses.environment(XLA_FLAGS="")
  done = subprocess.run([sys.executable, *words], cwd=ROOT, env=own, capture_output=True, text=True)
  return subprocesses.Ended(done.returncode, done.stdout, done.stderr)


def quickly(words) -> subprocesses.Ended:
  return subprocesses.forked([words], [subprocesses.environment()])[0]


@pytest.mark.parametrize("run", [quickly, pytest.param(alone, marks=pytest.mark.slow)])
def test_the_command_of_the_readme_leaves_everything_behind(cache, tmp_path, run):
  done = run(command(cache, tmp_path / "run")[1:])
  assert done.code == 0, done.err
  assert "compiled update in" in done.out and "held-out questions" in done.out
  assert "evaluating: 8 held-out questions" in done.out and "held-out after step 2: pass@1 " in done.out
  workdir = tmp_path / "run"
  assert {p.name for p in workdir.iterdir()} >= {
    "checkpoints", "metrics.jsonl", "tensorboard", "completions.jsonl", "config.json", "report.html",
  }  # fmt: skip
  records = metrics.read(workdir)
  assert [r["step"] for r in records if r["kind"] == "train"] == [1, 2]
  assert [r["step"] for r in records if r["kind"] == "eval"] == [0, 2]
  gap = "sampling/sampling_logp_difference/max"  # the sampler runs the policy that is trained
  assert all(r[gap] < 1e-4 for r in records if r["kind"] == "train")
  evals = [r for r in records if r["kind"] == "eval"]
  names = ("pass@1", "avg@4", "pass@4", "maj@4", "mean_length", "clipped_ratio")
  assert all(f"eval/{name}" in r for r in evals for name in names)
  assert json.loads((workdir / "config.json").read_text())["rollout"]["group_size"] == 4
  completions = metrics.read(workdir, "completions")
  assert {len(c["completions"]) for c in completions} == {4}
  assert list(workdir.glob("tensorboard/*/events*"))
  assert "loss(θ) = Σ w · (" in (workdir / "report.html").read_text()
  assert completions[0]["sent"].startswith("<|user|>") and completions[0]["parts"]["accuracy"]
  assert all(abs(sum(c["advantage"])) < 1e-5 for c in completions)  # of z-scores
  assert {"model", "data", "device", "code", "objective"} <= storage.read_json(workdir / "about.json").keys()


@pytest.mark.parametrize(  # a reference; refilling; success rates
  "recipe", ["grpo", *(pytest.param(recipe, marks=pytest.mark.slow) for recipe in ("dapo", "spo"))]
)
def test_stopped_at_an_epoch_edge_and_resumed_is_bit_equal_to_unbroken(cache, tmp_path, recipe):
  """Parameters, moments, reference and metrics; 20 prompts are 5 draws of 4, and grpo stops after 5."""

  def config(steps):
    c = remembering(cache) if recipe == "grpo" else tiny(cache, recipe)
    c.update(steps=steps)
    c.data.train = 20
    c.eval.every = 3
    return c

  whole = start(config(7), tmp_path / "whole")
  start(config(5), tmp_path / "cut")
  resumed = start(config(7), tmp_path / "cut")
  train_steps = [r["step"] for r in resumed if r["kind"] == "train"]
  assert train_steps == [1, 2, 3, 4, 5, 6, 7]
  # The shorter run also evaluated where it ended.
  extra = [r for r in resumed if r["kind"] == "eval" and r["step"] == 5]
  assert comparable([r for r in resumed if r not in extra]) == comparable(whole)
  ours, theirs = (final_tree(config(7), tmp_path / w) for w in ("cut", "whole"))
  for own in ("run", "records"):  # its name, and its clock
    assert ours[1]["stands_on"].pop(own) != theirs[1]["stands_on"].pop(own)
  assert ours[1] == theirs[1]
  jax.tree.map(np.testing.assert_array_equal, ours[0], theirs[0])


@pytest.mark.slow
def test_spo_expects_what_it_saw_and_forgets_nothing_while_the_policy_stands_still(
  cache, tmp_path, monkeypatch
):
  """Baselines of the whole job against a dictionary kept here; without learning no distance grows."""
  config = tiny(cache, "spo", steps=4)
  config.data.train, config.optimizer.learning_rate = 20, 0.0
  config.reward.accuracy = dict(fn=f"{__name__}:short")
  expected, outcomes = [], []
  seen = spy(batching.make_batches, lambda *a: expected.append((a[3].prompts.id, a[4])))
  monkeypatch.setattr(batching, "make_batches", seen)
  monkeypatch.setattr(
    curriculum, "update", spy(curriculum.update, lambda *a: outcomes.append((a[3].id, a[3].right, a[4])))
  )
  survey = []
  monkeypatch.setattr(
    curriculum, "survey", spy(curriculum.survey, lambda *a: survey.append((a[2].id, a[2].right, a[2].count)))
  )
  start(config, tmp_path)
  counts = {}
  for ids, right, count in survey:
    for i, r, n in zip(ids, right, count, strict=True):
      a, b = counts.get(i, (0.5, 0.5))
      counts[i] = a + r, b + n - r
  assert {a + b for a, b in counts.values()} == {2.0} and len(counts) == 20
  seen = set()
  for (ids, baseline), (same, right, keep) in zip(expected, outcomes, strict=True):
    np.testing.assert_array_equal(ids, same)
    rates = [counts[i][0] / sum(counts[i]) for i in ids]
    np.testing.assert_allclose(baseline, rates, rtol=1e-5)
    np.testing.assert_allclose(keep, [0.96 if i in seen else 1 for i in ids], rtol=1e-4)
    for i, r, k in zip(ids, right, keep, strict=True):
      counts[i] = k * counts[i][0] + r, k * counts[i][1] + 1 - r
    seen |= set(ids.tolist())
  assert 0 < sum(right.sum() for _, right, _ in outcomes) < 64  # both kinds were seen


def spy(fn, note):
  """fn, whose arguments are noted."""

  def spied(*args):
    note(*args)
    return fn(*args)

  return spied


def short(sample):
  return float(sample.length < 40)


@pytest.mark.slow
def test_a_finished_run_started_again_trains_nothing_and_says_so(cache, tmp_path, capsys):
  before = start(remembering(cache), tmp_path)
  capsys.readouterr()
  assert start(remembering(cache), tmp_path) == before
  said = capsys.readouterr().out
  assert "finished at step 2" in said and "--config.steps" in said


@pytest.mark.slow
def test_eight_devices_give_the_losses_of_one(cache, tmp_path):
  one = tiny(cache, steps=2)
  one.rollout.prompts = 16
  eight = one.copy_and_resolve_references()
  eight.mesh.data, eight.mesh.fsdp, eight.mesh.tensor = 2, 2, 2
  ours, theirs = start(eight, tmp_path / "eight"), start(one, tmp_path / "one")
  for a, b in zip(comparable(ours), comparable(theirs), strict=True):
    assert a.keys() == b.keys()
    for name in a.keys() & {"reward", "completions/mean_length", "num_tokens", "eval/pass@1"}:
      assert a[name] == b[name], name  # the same tokens were sampled
    for name in a.keys() & {"loss", "grad_norm", "entropy"}:
      assert a[name] == pytest.approx(b[name], rel=1e-3, abs=1e-5), name


@pytest.mark.slow
def test_rows_of_updates_give_the_same_losses(cache, tmp_path):
  """With a reference, whose passes have the same rows."""
  found = {}
  for rows in ("single", "packed"):
    config = tiny(cache, "grpo", steps=2, rows=rows, reference="init", microbatches=2)
    config.objective.penalty.kl = dict(fn="kl_k3", beta=0.04)
    config.reward.accuracy = dict(fn="test_train:short")
    records = [r for r in start(config, tmp_path / rows) if "kl" in r]
    found[rows] = [(r["loss"], r["grad_norm"], r["kl"]) for r in records]
  assert len(found["single"]) == 2 and found["single"][1][2] > 0
  np.testing.assert_allclose(found["packed"], found["single"], rtol=1e-4, atol=1e-6)


def raises_on_odd(sample):
  if sample.length % 2:
    raise RuntimeError("the verifier fell over")
  return 1.0


def nan_on_long(sample):
  return float("nan") if sample.length > 20 else 0.5


@pytest.mark.slow
def test_rewards_that_fail_cost_their_rows_and_the_run_goes_on(cache, tmp_path, capsys):
  config = tiny(cache)
  with config.unlocked():
    config.reward.raising = dict(fn=f"{__name__}:raises_on_odd")
    config.reward.nan = dict(fn=f"{__name__}:nan_on_long")
    config.guard.failed_rewards = 0.0  # tests/faults/test_numbers.py has what stops a run
  records = [r for r in start(config, tmp_path) if r["kind"] == "train"]
  assert [r["step"] for r in records] == [1, 2]
  for r in records:
    assert r["rewards/raising/failed"] > 0 and r["rewards/nan/failed"] > 0
    assert np.isfinite(r["loss"])
  said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Reward ")]
  assert said and len(said) == len(set(said))  # each trouble is said, and said once


@pytest.mark.slow
def test_ctrl_c_saves_says_so_and_the_same_command_goes_on(cache, tmp_path):
  every = [f"--config.{key}=400" for key in ("steps", "eval.every", "checkpoint.every")]
  run = command(cache, tmp_path, *every, "--config.mesh.cpu_devices=2")
  process = subprocess.Popen(run, cwd=ROOT, env=subprocesses.environment(), stdout=subprocess.PIPE, text=True)
  seen = ""
  for line in process.stdout:
    seen += line
    if "step 3/" in line:
      process.send_signal(signal.SIGINT)
      break
  seen += process.stdout.read()
  assert process.wait(60) == os.EX_TEMPFAIL, seen
  assert "mesh data 2 x" in seen and "on 2 of 2 cpu" in seen
  stopped = [r["step"] for r in metrics.read(tmp_path) if r["kind"] == "train"][-1]
  assert f"Stopped after step {stopped} and saved" in seen
  run = [f if not f.startswith("--config.steps") else f"--config.steps={stopped + 1}" for f in run]
  again = subprocess.run(run, cwd=ROOT, env=subprocesses.environment(), capture_output=True, text=True)
  assert again.returncode == 0 and f"resumed after step {stopped}" in again.stdout
  steps = [r["step"] for r in metrics.read(tmp_path) if r["kind"] == "train"]
  assert steps == list(range(1, stopped + 2))


@pytest.mark.parametrize(
  ("flags", "sentence"),
  [
    (["--config.rollout.group_sise=4"], "group_size"),
    pytest.param(["--config.rollout.group_size=1"], "config.rollout.group_size", marks=pytest.mark.slow),
    pytest.param(["--config.mesh.tensor=64"], "config.mesh", marks=pytest.mark.slow),
    pytest.param(["--config.objective.ratio.fn=sequense"], "sequense", marks=pytest.mark.slow),
    (["--config.data.prompt_budget=9", "--config.data.overlong_prompts=error"], "prompt_budget"),
  ],
)
def test_bad_flags_end_in_one_sentence_before_anything_compiles(cache, tmp_path, flags, sentence):
  started = time.time()
  done = subprocesses.run_one(*command(cache, tmp_path / "run", *flags)[2:])
  assert done.code == 1 and time.time() - started < 60
  assert sentence in done.err and "Traceback" not in done.err, done.err
  assert len(done.err.strip().splitlines()) == 1, done.err
  assert "compil" not in done.out
