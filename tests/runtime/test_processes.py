"""Several processes, for real, on loopback: the numbers of one, agreements, deaths, and what is refused."""

import importlib.metadata
import json
import os
import re
import shutil
import signal
import time
from collections import Counter

import jax
import numpy as np
import pytest
import subprocesses
from subprocesses import ended_well

from grpojax import train
from grpojax.data import pipeline
from grpojax.runtime import checkpointer, metrics, processes, report
from grpojax.tools.evaluate import benchmark
from grpojax.train import checkpoint

STEPS, HEARTBEAT = 3, 10  # training steps; seconds
CHANGES = {
  "steps": STEPS, "verbose": False, "rollout.prompts": 8, "rollout.max_tokens": 16, "rollout.segment": 8,
  "data.train": 64, "eval.every": STEPS, "eval.samples": 4, "dynamic_sampling.max_tries": 3,
  "model.num_hidden_layers": 1, "remat": "none",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(cache, tmp_path_factory):
  folder = tmp_path_factory.mktemp("hosts")
  (folder / "cache").symlink_to(cache)
  return folder


def config(folder, **changes):
  """DAPO: two updates a step, dynamic sampling, packing; half of all groups are mixed."""
  c = importlib.import_module("grpojax.recipes.dapo").get_config("tiny")
  c.cache_dir = str(folder / "cache")
  c.reward.accuracy = dict(fn="subprocesses:odd")
  with c.unlocked():
    c.update_from_flattened_dict(CHANGES | changes)
  return c


def command(folder, workdir, devices=2, **changes):
  """The same, as a command line."""
  said = CHANGES | {"cache_dir": folder / "cache", "mesh.cpu_devices": devices} | changes
  return [
    "-m", "grpojax.main", "--config=configs/dapo.py:tiny", f"--workdir={workdir}",
    f"--heartbeat_timeout={HEARTBEAT}", "--config.reward.accuracy={'fn': 'subprocesses:odd'}",
    *(f"--config.{key}={value}" for key, value in said.items()),
  ]  # fmt: skip


def comparable(workdir, fed=True):
  """Records of RL without what a clock wrote, and without how prompts were `fed` where that differs."""
  own = ("time/", "tokens_per_second/", "memory/", "wall")
  if not fed:
    own += ("rollout/", "dynamic_sampling/", "num_tokens", "prompts/", "drawn/")
    own += ("rewards/answered", "rewards/graded")
  return [
    {k: v for k, v in r.items() if not k.startswith(own)}
    for r in metrics.read(workdir)
    if r["kind"] != "cold_start"
  ]


def same(ours, theirs, **tolerance):
  """Every number of every record."""
  assert [(r["kind"], r["step"]) for r in ours] == [(r["kind"], r["step"]) for r in theirs]
  for a, b in zip(ours, theirs, strict=True):
    assert a.keys() == b.keys()
    for name in a.keys() - {"kind"}:
      close = b[name] if b[name] is None else pytest.approx(b[name], **tolerance)
      assert a[name] == close, (name, a["step"])


def final_tree(folder, workdir, **changes):
  job = train.prepare(config(folder, **{"mesh.data": 4}, **changes), workdir)
  checkpoints = checkpointer.open_checkpoints(workdir, 2)
  tree, host = checkpointer.latest(checkpoints, *checkpoint.tree_layout(job))
  checkpoints.close()
  return jax.tree.map(np.asarray, tree), host


def logs(folder, name, *signals):
  """Environment of two processes that note who scored what, and which signal reaches process 1 when."""
  own = [{"SCORED": str(folder / f"{name}-{i}")} for i in range(2)]
  own[1]["SIGNAL"] = "".join(signals)
  return own


@pytest.fixture(scope="module")
def two(folder):
  """A run of two processes with two devices each that nothing stopped: where it is, what each said."""
  found = subprocesses.run([command(folder, folder / "two")] * 2, logs(folder, "scored"))
  ended_well(found)
  return folder / "two", found


@pytest.fixture(scope="module")
def one(folder, two):
  """The same with one process that has four devices, from the same cold start; it draws no report."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(report, "write", lambda files: None)
    train.run(train.prepare(config(folder, **{"mesh.data": 4}), folder / "one"))
  return folder / "one"


def test_two_processes_have_the_numbers_of_one(two, one):
  same(comparable(two[0]), comparable(one), rel=1e-6, abs=1e-6)
  records = [r for r in metrics.read(two[0]) if r["kind"] == "train"]
  assert any(r["dynamic_sampling/tries"] > 1 for r in records)
  assert any(r["dynamic_sampling/skipped_prompts"] for r in records)
  assert any(r["dynamic_sampling/cancelled_groups"] for r in records)
  assert all(r["grad_norm"] > 0 and 0 < r["accuracy"] < 1 for r in records)


@pytest.mark.slow
def test_so_have_two_and_four_whose_last_devices_sample_ahead(folder, two):
  """Half of the devices of each, from matrices that are cut over all processes; two cut the sampler's too.

  Every step is saved while the next is sampled.
  """
  apart = {"staleness": 1, "mesh.sampler.tensor": 2, "mesh.data": 1, "mesh.fsdp": 4, "checkpoint.every": 1}
  ended_well(subprocesses.run([command(folder, folder / "ahead", devices=4, **apart)]))
  expected = comparable(folder / "ahead", fed=False)
  assert any(r["ppo_kl"] > 0 for r in expected if "ppo_kl" in r)
  for number, tensor in (2, 2), (4, 1):
    workdir = folder / f"apart-{number}"
    own = {"mesh.rollout_devices": 4, "mesh.sampler.tensor": tensor}
    words = command(folder, workdir, devices=8 // number, **apart | own)
    ended_well(subprocesses.run([words] * number))
    same(comparable(workdir, fed=False), expected, rel=1e-6, abs=1e-6)


LATE = {"reward.accuracy": "{'fn': 'subprocesses:odd_late'}"}


@pytest.mark.slow
def test_they_keep_the_groups_of_one_however_late_each_is_answered(one, folder):
  ended_well(subprocesses.run([command(folder, folder / "late", **LATE)] * 2))
  same(comparable(folder / "late", fed=False), comparable(one, fed=False), rel=1e-6, abs=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
def test_so_they_do_where_the_tries_are_over_and_of_an_evaluation_of_many_batches(folder, tmp_path):
  """32 questions in eight batches, which stream."""
  few = {"dynamic_sampling.max_tries": 1, "rollout.prompts": 4, "updates_per_rollout": 1, "eval.prompts": 32}
  ended_well(subprocesses.run([command(folder, tmp_path / "two", **few, **LATE)] * 2))
  train.run(train.prepare(config(folder, **{"mesh.data": 4}, **few), tmp_path / "one"))
  expected = comparable(tmp_path / "one", fed=False)
  same(comparable(tmp_path / "two", fed=False), expected, rel=1e-6, abs=1e-6)
  assert 0 < expected[-1]["eval/pass@1"] < 1
  drawn = [record for record in metrics.read(tmp_path / "two") if record["kind"] == "train"]
  assert any(record["dynamic_sampling/missing_groups"] for record in drawn)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_jobs")
def test_so_they_do_of_groups_that_grow_on_one_longer_than_on_the_other(folder, tmp_path):
  grow = {"adaptive_group.stop": "balanced", "dynamic_sampling.enabled": False, "difficulty.kind": "ema"}
  pooled = {"objective.advantage": "{'fn': 'pooled'}"}
  ended_well(subprocesses.run([command(folder, tmp_path / "two", **grow, **pooled)] * 2))
  c = config(folder, **{"mesh.data": 4}, **grow)
  c.objective.advantage = dict(fn="pooled")
  train.run(train.prepare(c, tmp_path / "one"))
  without = lambda path: [  # fillers are other prompts
    {name: x for name, x in record.items() if name != "adaptive_group/filler_tokens"}
    for record in comparable(path, fed=False)
  ]
  same(without(tmp_path / "two"), expected := without(tmp_path / "one"), rel=1e-5, abs=1e-6)
  grown = [record for record in expected if record["kind"] == "train"]
  assert all(record["adaptive_group/size"] > 4 and "difficulty/mean" in record for record in grown)


def test_every_group_that_is_needed_is_scored_once_by_one_of_the_processes(two, folder):
  """So are some that were begun and not needed, and no other."""
  scored = [Counter((folder / f"scored-{i}").read_text().splitlines()) for i in range(2)]
  assert all(times % 4 == 0 for one in scored for times in one.values())  # whole groups
  data = train.prepare(config(folder, **{"mesh.data": 4}), folder / "nowhere").data
  needed = Counter(record["question"] for record in data.held_out.records[:8] * 2)  # before and after
  begun, position = needed.copy(), 0
  for record in (r for r in metrics.read(two[0]) if r["kind"] == "train"):
    tries = int(record["dynamic_sampling/tries"])
    drawn = [e["question"] for n in range(3) for e in data.stream[position + n].example]
    needed.update(drawn[: 8 * tries - int(record["dynamic_sampling/skipped_prompts"])])
    begun.update(drawn)
    position += tries
  of_all = Counter({question: times // 4 for question, times in (scored[0] + scored[1]).items()})
  assert needed <= of_all <= begun


def test_only_process_0_speaks_and_writes_and_both_save(two):
  workdir, (first, second) = two
  # Threads of Gloo write its lines, one into another.
  said = [line for line in second.out.splitlines() if line and "peer ranks" not in line]
  assert "2 process(es)" in first.out and "report:" in first.out and said == []
  assert len((workdir / "commands.txt").read_text().splitlines()) == 1
  assert [r["step"] for r in metrics.read(workdir, "completions")] == list(range(1, STEPS + 1))
  assert (workdir / "report.html").exists()
  parts = {path.name for path in (workdir / "checkpoints").glob(f"*{STEPS}/*/ocdbt.process_*")}
  assert parts == {"ocdbt.process_0", "ocdbt.process_1"}


@pytest.mark.slow
def test_four_processes_go_on_on_another_mesh_until_one_of_them_is_told_to_stop(two, folder):
  """As one process does with their eight devices; SIGTERM to one saves the same step on all.

  Two processes each share a shard of the batch, and the second of them grades as if its clock ran faster.
  """
  changes = {"steps": STEPS + 4, "mesh.data": 1, "mesh.fsdp": 2, "mesh.tensor": 4}
  for name in ("four", "alone"):
    shutil.copytree(two[0], folder / name)
  told = {"SCORED": str(folder / "told"), "SIGNAL": "SIGTERM:40"}  # in the third draw
  others = {"WRONG": "all"}
  found = subprocesses.run([command(folder, folder / "four", **changes)] * 4, [{}, others, {}, others | told])
  ended_well(found, os.EX_TEMPFAIL)
  assert f"resumed after step {STEPS}" in found[0].out and "4 process(es)" in found[0].out
  stop = int(re.search(r"Stopped after step (\d+) and saved", found[0].out)[1])
  assert STEPS < stop < STEPS + 4
  assert checkpointer.steps(folder / "four")[-1] == stop
  train.run(train.prepare(config(folder, **changes), folder / "alone"))
  alone = [r for r in comparable(folder / "alone", fed=False) if r["step"] <= stop]  # the four go by rounds
  same(comparable(folder / "four", fed=False), alone, rel=1e-6, abs=1e-6)


@pytest.mark.slow
def test_a_death_ends_the_other_too_and_the_same_command_goes_on_bit_equal(two, folder):
  run = [command(folder, folder / "cut")] * 2
  first, second = subprocesses.run(run, logs(folder, "kill", "SIGKILL:72"))  # in the fourth draw
  assert second.code == -signal.SIGKILL and first.code in (processes.LOST, -signal.SIGABRT)
  assert time.time() - (folder / "kill-1").stat().st_mtime < HEARTBEAT + processes.LAST_WORDS + 30
  ours, of_jax = "lost another process of this run", "another task died"  # of whoever learns of it first
  assert ours in first.err or of_jax in first.err, first.err

  saved = checkpointer.steps(folder / "cut")
  again = subprocesses.run(run)
  ended_well(again)
  assert saved, "of a fourth draw the first step's checkpoint is long on the disk"
  assert f"resumed after step {saved[-1]} of" in again[0].out
  same(comparable(folder / "cut"), comparable(two[0]), rel=0, abs=0)
  (ours, host), (theirs, other) = (final_tree(folder, path) for path in (folder / "cut", two[0]))
  for own in ("run", "records"):  # its name, and its clock
    assert host["stands_on"].pop(own) != other["stands_on"].pop(own)
  assert host == other
  jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.slow
def test_when_one_hangs_the_others_end_in_bounded_time_and_say_where(two, folder):
  """The hung one cannot end itself (SIGSTOP); when it is let go, it finds that it has lost the others."""
  shutil.copytree(two[0], folder / "hung")
  run = [command(folder, folder / "hung", **{"steps": STEPS + 4, "guard.minutes": 0.5})] * 2
  run = [[*words, "--heartbeat_timeout=100"] for words in run]  # which would end them too, but says nothing
  first, second = subprocesses.start(run, logs(folder, "hung", "SIGSTOP:24"))
  found = subprocesses.ended([first])
  second.send_signal(signal.SIGCONT)
  found += subprocesses.ended([second])
  assert found[0].code == os.EX_TEMPFAIL, found[0].out + found[0].err
  assert found[1].code in (os.EX_TEMPFAIL, processes.LOST, -signal.SIGABRT), found[1].err
  stacks = (folder / "hung" / "stacks_0.txt").read_text()
  assert "no progress for 0.5 minutes (config.guard.minutes)" in stacks and "in collect" in stacks
  assert checkpointer.steps(folder / "hung")[-1] >= STEPS


@pytest.mark.slow
def test_a_config_that_differs_is_named_on_all_before_anything_compiles(folder):
  seeds = [{}, {"seed": 1}]
  found = subprocesses.run([command(folder, folder / "differ", **seed) for seed in seeds])
  for ended in found:
    assert ended.code == 1 and "compil" not in ended.out
    assert ended.err.strip().splitlines()[-1] == (
      "error: config.seed is 0 on process 0 and 1 on process 1; start the same on all processes."
    )


@pytest.mark.slow
def test_evaluation_by_two_processes_is_that_by_one(two, folder):
  said = [word for word in command(folder, folder / "unused") if "workdir" not in word]
  said[1:2] = ["grpojax", "evaluate"]
  said += [f"--checkpoint={two[0]}", "--suite=validation", "--limit=11", f"--out={folder / 'eval-two'}"]
  ended_well(subprocesses.run([said] * 2))
  job = benchmark.prepare(config(folder, **{"mesh.data": 4}), str(two[0]), ["validation"], limit=11)
  params, done = benchmark.begin(job, folder / "eval-one")
  benchmark.run(job, folder / "eval-one", params, done)
  read = lambda out: (out / "items.jsonl").read_text()
  assert read(folder / "eval-two") == read(folder / "eval-one")
  assert len(metrics.read(folder / "eval-two", "items")) == 11


@pytest.mark.parametrize(
  ("error", "said"),
  [
    (AssertionError(), r"JAX_PLATFORMS = 'cpu'; install grpojax\[cuda\]"),  # as of `cuda` without a plugin
    (RuntimeError("Unable to initialize backend 'x'\nmore"), r"'cpu' \(Unable to initialize backend 'x'\);"),
  ],
)
def test_platforms_without_a_device_are_named(monkeypatch, error, said):
  def devices():
    raise error

  monkeypatch.setattr(jax, "devices", devices)
  with pytest.raises(ValueError, match=said):
    processes.check_devices()


def test_what_differs_is_named_by_all_its_processes(monkeypatch):
  given = [{"jax": "1", "config.seed": "0"}, {"jax": "1", "config.seed": "3"}, {"config.seed": "3"}]
  monkeypatch.setattr(jax, "process_count", lambda: 3)
  monkeypatch.setattr(processes, "gather_texts", lambda own: [json.dumps(one) for one in given])
  with pytest.raises(ValueError, match=r"jax is 1 on process 0 and not set on process 2 \(config.seed d"):
    processes.assert_equal(lambda: given[0])
  given[2]["jax"] = "1"
  with pytest.raises(ValueError, match=r"config.seed is 0 on process 0 and 3 on process 1, 2; start"):
    processes.assert_equal(lambda: given[0])


def test_all_that_must_be_the_same_is_compared_before_anything_else(folder, monkeypatch):
  compared = []
  monkeypatch.setattr(processes, "assert_equal", lambda what: compared.append(what()))
  c = config(folder, **{"mesh.data": 4})
  data = train.prepare(c, folder / "nowhere").data
  first, rows = compared
  assert {"grpojax", "jax", "--workdir", "config.seed", "config.objective.surrogate.high"} <= first.keys()
  assert rows == {f"split '{s.name}'": pipeline.fingerprint(s) for s in (data.train, data.held_out)}


def test_a_line_that_differs_is_other_code(tmp_path, monkeypatch):
  source = tmp_path / "objective" / "ratio.py"
  source.parent.mkdir()
  source.write_text("ONE = 1\n")
  monkeypatch.setattr(processes, "__file__", str(tmp_path / "hosts.py"))
  before = processes.code()
  assert before == processes.code()
  source.write_text("ONE = 2\n")
  assert before["grpojax"] != processes.code()["grpojax"] and before["jax"] == processes.code()["jax"]


def test_a_checkout_that_is_not_installed_runs_and_is_told_by_its_source(monkeypatch):
  def missing(name):
    raise importlib.metadata.PackageNotFoundError(name)

  monkeypatch.setattr(importlib.metadata, "version", missing)
  assert re.fullmatch(r"not installed \(source [0-9a-f]{12}\)", processes.code()["grpojax"])


def test_a_row_that_differs_changes_the_fingerprint(folder):
  split = train.prepare(config(folder, **{"mesh.data": 4}), folder / "nowhere").data.held_out
  other = split._replace(records=[split.records[0] | {"answer": "0"}, *split.records[1:]])
  assert pipeline.fingerprint(split) == pipeline.fingerprint(split) != pipeline.fingerprint(other)


@pytest.mark.parametrize(
  ("given", "environment", "sentence"),
  [
    (dict(num_processes=2), {}, "--num_processes set without --coordinator_address and --process_id"),
    ({}, {"JAX_COORDINATOR_ADDRESS": "a:1"}, "set without --num_processes and --process_id"),
    (dict(coordinator_address="a:1", num_processes=2, process_id=2), {}, "--process_id=2 must lie in 0 to 1"),
    (dict(coordinator_address="a", num_processes=2, process_id=0), {}, "lacks a port"),
    (dict(num_processes=0), {}, "--num_processes"),
    ({}, {"JAX_NUM_PROCESSES": "two"}, "JAX_NUM_PROCESSES"),
  ],
)
def test_wrong_combinations_are_refused(monkeypatch, given, environment, sentence):
  for name, value in environment.items():
    monkeypatch.setenv(name, value)
  with pytest.raises(ValueError, match=re.escape(sentence)):
    processes.initialize(given)


@pytest.mark.parametrize(
  ("given", "environment", "platforms", "asked"),
  [
    ({}, {}, "cpu", None),
    ({}, {"SLURM_NTASKS": "1", "SLURM_STEP_NODELIST": "n1"}, "cpu", None),
    ({}, {"SLURM_NTASKS": "8"}, "cpu", None),  # a shell within an allocation
    ({}, {"SLURM_NTASKS": "8", "SLURM_STEP_NODELIST": "n[1-8]"}, "cpu", {}),
    ({}, {}, "tpu,cpu", {}),
    (dict(num_processes=1), {}, "tpu,cpu", None),
    (dict(process_id=0), {"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"},
     "cpu", dict(coordinator_address="a:1", num_processes=2, process_id=0)),
  ],
)  # fmt: skip
def test_who_is_asked_about_the_other_processes(monkeypatch, given, environment, platforms, asked):
  calls = []
  monkeypatch.setattr(jax.distributed, "initialize", lambda **found: calls.append(found))
  monkeypatch.setattr(jax.config, "update", lambda *_: None)
  monkeypatch.setattr(processes, "_platforms", lambda: platforms)
  for name, value in environment.items():
    monkeypatch.setenv(name, value)
  processes.initialize(given, heartbeat=7)
  assert calls == ([] if asked is None else [asked | {"heartbeat_timeout_seconds": 7}])
