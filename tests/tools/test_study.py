"""Studies: the plan, the statistics, and what results.json, table, figures and page say of known records."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from etils import epath
from rich.console import Console
from scipy import stats
from study_toys import FINAL, MACHINE, STUDY, TOKENS, finish, runs

from grpojax.config import check as config_lib
from grpojax.config.commandline import config_of
from grpojax.runtime import errors, lock, storage
from grpojax.tools import sweep
from grpojax.tools.study import (
  Figure,
  Row,
  Section,
  cluster,
  cumulative,
  execute,
  figures,
  machine,
  page,
  plan,
  power,
  results,
  statistics,
  table,
)
from grpojax.tools.study import command as study_command


@pytest.fixture
def out(tmp_path):
  for run in runs(tmp_path):
    finish(run)
  return tmp_path


def collected(out, **how):
  return results.collect(STUDY, runs(out, **how), "python -m toy")


# The plan.


def test_seeds_are_the_outer_loop_and_every_run_has_a_command_of_its_own(tmp_path):
  planned = runs(tmp_path, seeds=2)
  assert [(r.row.name, r.seed) for r in planned] == [(n, s) for s in (0, 1) for n in ("a", "<b>", "c")]
  assert len({r.workdir for r in planned}) == 6
  run = planned[4]
  assert run.arguments == [
    "--config=configs/base.py:tiny", "--config.objective.surrogate.high=0.28", "--config.steps=4",
    "--config.seed=1", f"--workdir={tmp_path}/runs/b/seed1",
  ]  # fmt: skip


def test_the_plans_config_is_the_one_that_the_command_makes(tmp_path):
  for run in runs(tmp_path, seeds=2):
    assert run.config.to_dict() == config_of(list(run.flags)).to_dict()
    config_lib.check(run.config, 1)


def test_rows_are_chosen_by_name_or_number_in_the_studys_order(tmp_path):
  assert [r.row.name for r in runs(tmp_path, 1, only=["c", "1"])] == ["a", "c"]
  with pytest.raises(ValueError, match="--rows has 'd', and toy has: 1 a, 2 <b>, 3 c"):
    runs(tmp_path, only=["d"])


@pytest.mark.parametrize(
  "changes, sentence",
  [
    ({"objective.surrogate.hihg": 0.3}, "Row 'a': config.objective.surrogate: ppo_clip has no hihg"),
    ({"rollout.group_size": 0}, "Row 'a': config.rollout.group_size = 0 must be at least 1"),
    ({"objective.ratio.fn": "tokn"}, "Row 'a': config.objective.ratio.fn = 'tokn'"),
    ({"reward.accuracy.fn": "rules:nope"}, "Row 'a': config.reward.accuracy.fn"),
  ],
)
def test_an_illegal_row_is_refused_before_anything_runs(tmp_path, changes, sentence):
  study = STUDY._replace(rows=(Row("a", "configs/base.py:tiny", changes),))
  with pytest.raises(ValueError, match=sentence):
    plan.make(study, tmp_path, 1, [], [])


def test_a_whole_slot_comes_before_a_number_inside_it(tmp_path):
  changes = {"objective.surrogate.high": 0.3, "objective.surrogate": {"fn": "dual_clip", "high": 0.1}}
  made = plan.make(STUDY._replace(rows=(Row("a", "configs/base.py:tiny", changes),)), tmp_path, 1, [], [])
  assert made[0].config.objective.surrogate.to_dict() == {"fn": "dual_clip", "high": 0.3}


def test_rows_of_two_groups_may_have_the_same_name(tmp_path):
  rows = [Row("x", "configs/base.py:tiny", {"steps": 3 + i}, group=group) for i, group in enumerate("ab")]
  made = plan.make(STUDY._replace(rows=tuple(rows)), tmp_path, 1, [], [])
  assert [run.row.label for run in made] == ["a: x", "b: x"] and len({run.workdir for run in made}) == 2
  assert [run.config.steps for run in made] == [3, 4]
  assert plan.chosen(STUDY._replace(rows=tuple(rows)), ["b: x"]) == rows[1:]


def test_cumulative_rows_have_what_those_before_them_have():
  rows = cumulative("x.py", ("a", {}, 30), ("b", {"p": 1}, 36), ("c", {"q": 2, "p": 3}, None))
  assert [row.changes for row in rows] == [{}, {"p": 1}, {"p": 3, "q": 2}]
  assert [row.quoted for row in rows] == [30, 36, None]


def test_a_run_is_done_once_its_last_checkpoint_is_there(tmp_path):
  run = runs(tmp_path)[0]
  assert not plan.is_done(run)
  finish(run)
  assert plan.is_done(run)
  longer = runs(tmp_path, extra=["--config.steps=5"])[0]  # goes on from there
  assert not plan.is_done(longer)
  with pytest.raises(ValueError, match=r"another config \(rollout.temperature: 1.0 -> 0.9\)"):
    plan.is_done(runs(tmp_path, extra=["--config.rollout.temperature=0.9"])[0])


def test_one_study_runs_in_a_folder_at_a_time(tmp_path):
  """The runs of a second one would fail, each at a workdir that is taken."""
  (tmp_path / "file").touch()
  args = study_command.parser("python -m toy").parse_args([])
  for folder, said in ("out", "--out=.*/out has a study that goes on: process "), ("file", "cannot be made"):
    told = pytest.raises(ValueError, match=said)
    with lock.hold(tmp_path / "out" / ".lock", "the first"), told:
      study_command.main("python -m toy", STUDY, args, [], str(tmp_path / folder))
  assert not (tmp_path / "out" / "runs").exists()


def test_a_study_ends_in_one_sentence_or_with_the_flag_in_a_traceback(monkeypatch):
  monkeypatch.setattr(errors, "_debug", False)
  monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # which a command replaces
  for words, ends in ([], SystemExit), (["--debug"], ValueError):
    monkeypatch.setattr(sys, "argv", ["toy", "--rows=none", *words])
    with pytest.raises(ends, match="--rows has 'none', and toy has: 1 "):
      study_command.run("toy", lambda scale: STUDY, ("tiny",))


def test_the_cost_counts_every_completion_at_its_longest():
  c = config_of(["--config=configs/dapo.py:tiny", "--config.steps=3"])
  trained, held_out = 3 * 4 * 4 * 4, (1 + 2) * 8 * 4  # steps, tries, P, G; evaluations, questions, samples
  assert plan.cost(c) == (trained + held_out, trained * 48 + held_out * 48, 3 * 2, held_out * 48)


def test_a_row_is_named_by_its_number_or_its_name_which_may_have_commas():
  rows = (Row("low=0.2, high=0.28", ""), Row("low=0.2", ""), Row("c", ""))
  study = STUDY._replace(rows=rows)
  text = " low=0.2, high=0.28 ,c"
  assert plan.named(study, text) == ["low=0.2, high=0.28", "c"]
  assert plan.named(study, "low=0.2,3") == ["low=0.2", "3"] and plan.named(study, "") == []


@pytest.mark.parametrize(
  ("flags", "sentence"),
  [
    (["--config.seed=7"], "config.seed is each run's own"),
    (["--config.eval.on_start=False"], "config.eval.on_start = False, and no other row of its group"),
  ],
)
def test_what_is_a_studys_own_is_refused(tmp_path, flags, sentence):
  with pytest.raises(ValueError, match=sentence):
    runs(tmp_path, extra=flags)


@pytest.mark.parametrize(
  ("flag", "sentence"),
  [
    ("--seeds=0", "--seeds=0 is how often"),
    ("--parallel=-1", "--parallel=-1 is how many"),
    ("--out=gs://bucket/x", "--out=gs://bucket/x is a bucket, and only a disk of this machine"),
    ("--backend=xpk", "--backend=xpk needs --out=gs://BUCKET/toy"),
  ],
)
def test_a_flag_that_no_study_can_keep_is_refused_before_a_run(tmp_path, monkeypatch, flag, sentence):
  monkeypatch.chdir(tmp_path)
  args, extra = study_command.parser("toy").parse_known_args([flag])
  with pytest.raises(ValueError, match=sentence):
    study_command.main("toy", STUDY, args, extra, "runs/toy")


def test_runs_of_a_cluster_may_be_in_a_bucket_and_their_results_are_here(tmp_path, monkeypatch):
  """The bucket is a folder beside: what `resolve` gives for one is no pathlib.Path either."""
  bucket = epath.Path(tmp_path / "bucket")
  monkeypatch.setattr(storage, "resolve", lambda name, key: bucket if storage.in_bucket(name) else Path(name))
  assert study_command.folders("gs://b/toy", "runs/toy", "xpk") == (Path("runs/toy"), bucket)
  planned = runs(bucket)
  for run in planned:
    finish(run)
  monkeypatch.setattr(storage, "resolve", lambda name, key: name)
  found = results.collect(STUDY, planned, "python -m toy")
  assert [row["final"]["values"] for row in found["rows"]] == [[*FINAL[name]] for name in FINAL]
  assert not found["missing"] and found["environment"]["commit"] == "abc123"


def test_scripts_for_clusters_have_every_run_that_is_left(tmp_path):
  for backend, word in ("slurm", "sbatch --job-name="), ("xpk", "xpk workload create --workload="):
    planned = runs(tmp_path if backend == "slurm" else epath.Path("gs://bucket/toy"), seeds=1)
    script = cluster.write(backend, "toy", tmp_path, planned, "python -m toy")
    subprocess.run([Path(sys.executable).with_name("shellcheck"), script], check=True)  # of the test extra
    lines = script.read_text().splitlines()
    submitted = [line for line in lines if line.startswith(word)]
    assert len(submitted) == 3
    for line, run in zip(submitted, planned, strict=True):
      assert f"--workdir={run.workdir}" in line and "--config.seed=0" in line
    names = [line.removeprefix(word).split()[0] for line in submitted]
    assert len(set(names)) == 3 and all(len(name) < 40 for name in names)


# The statistics.


def test_the_interval_of_few_seeds_is_as_wide_as_students():
  """Of one sample the two differ by its shape; over many they agree."""
  rng = np.random.default_rng(1)
  for S in (6, 8, 12):
    samples = rng.normal(size=(S, 400))
    _, low, high = statistics.estimates(samples)
    student = 2 * stats.t.ppf(0.975, S - 1) * samples.std(0, ddof=1) / np.sqrt(S)
    np.testing.assert_allclose(np.mean((high - low) / student), 1, atol=0.08)


@pytest.mark.slow
def test_intervals_cover_what_they_say():
  """Of 8 seeds; five can reach 93.75 %, the chance that five values lie on both sides of their median."""
  samples = np.random.default_rng(2).normal(size=(8, 2000))
  _, low, high = statistics.estimates(samples)
  assert 0.92 < np.mean((low < 0) & (high > 0)) < 0.97


def test_an_estimate_is_the_mean_and_its_interval_contains_it():
  e = statistics.estimate([0.5, 0.6, 0.7, 0.6, 0.5])
  assert e.low < e.mean < e.high and e.mean == pytest.approx(0.58)
  assert e.low > 0.5 - 1e-9 and e.high < 0.7 + 1e-9
  assert statistics.estimate([0.5, 0.6, 0.7]) == statistics.estimate([0.5, 0.6, 0.7])  # no chance in it
  assert np.isnan(statistics.estimate([0.5]).low)


def test_the_least_difference_that_seeds_detect_is_found_in_four_studies_of_five():
  """By simulation of the paired test; a smaller one in fewer, none in one of twenty."""
  rng = np.random.default_rng(3)
  for S in (3, 5, 8):
    least = statistics.detectable(2.0, S)
    found = []
    for true in (0.0, least / 2, least):
      seen = rng.normal(true, 2.0, size=(S, 20_000))
      found.append(np.mean(stats.ttest_1samp(seen, 0).pvalue < 0.05))
    assert found[0] == pytest.approx(0.05, abs=0.01) and found[1] < 0.5
    assert found[2] == pytest.approx(0.8, abs=0.05)
  assert statistics.detectable(4.0, 3) == pytest.approx(2 * statistics.detectable(2.0, 3))
  assert np.isnan(statistics.detectable(2.0, 1))


def test_what_can_be_detected_is_said_before_anything_runs_and_beside_the_table(out, capsys):
  study = STUDY._replace(scatter=4.0)
  sentence = "3 seeds tell a difference of 12.4 points from nothing"
  study_command.describe(Console(), study, runs(out), runs(out), 1)
  assert sentence in capsys.readouterr().out
  assert sentence in table.markdown(study, collected(out))
  assert "points from nothing" not in table.markdown(STUDY, collected(out))


def test_a_half_width_is_students_and_fewer_seeds_would_be_wider():
  """Of 12 seeds that scatter by 2: t of 11 degrees of freedom is 2.201."""
  assert statistics.half_width(2.0, 12) == pytest.approx(2.201 * 2 / 12**0.5, abs=1e-3)
  assert np.isnan(statistics.half_width(2.0, 1))
  for spread in (0.1, 2.0, 3.3):
    n = statistics.seeds_for(spread, 1.5)
    assert statistics.half_width(spread, n) <= 1.5
    assert n == 2 or statistics.half_width(spread, n - 1) > 1.5


def test_finished_seeds_are_the_pilot_of_those_that_are_planned(tmp_path, capsys):
  """Three seeds of a and b are there: both scatter by 10 points, and their difference not at all."""
  planned = runs(tmp_path, seeds=12)
  done = [run for run in planned if run.seed < 3 and run.row.name != "c"]
  for run in done:
    finish(run)
  left = [run for run in planned if not plan.is_done(run)]
  study = STUDY._replace(width=1.5, spread=3.0, scatter=4.0)
  assert power.spread(study, planned, planned) == (3.0, 4.0, "as the study expects", "", 0.0)
  single, paired, source, _, widest = power.spread(study, planned, left)
  assert (single, widest) == pytest.approx((10, 10)) and paired == pytest.approx(0, abs=1e-6)
  assert source == "as 6 finished runs of 2 rows do"
  study_command.describe(Console(width=200), study, planned, left, 1)
  said = capsys.readouterr().out
  half, needed = 2.201 * 10 / 12**0.5, statistics.seeds_for(10.0, 1.5)
  assert f"12 seeds: ± {half:.1f} points of a single row if it scatters by 10.0 from seed to seed" in said
  assert f"± 1.5 takes {needed} seeds, as 6 finished runs of 2 rows do" in said


def test_deviations_are_pooled_by_their_degrees_of_freedom():
  samples = [[0.1, 0.2, 0.3], [0.5, 0.7]]
  wanted = 100 * ((2 * 0.1**2 + 1 * (0.2**2 / 2)) / 3) ** 0.5
  assert power.pooled(samples) == pytest.approx(wanted) and power.pooled([]) == 0


# What is made of records.


def test_differences_are_paired_by_seed(out):
  rows = {row["name"]: row for row in collected(out)["rows"]}
  assert rows["a"]["over_first"] is None and rows["a"]["over_previous"] is None
  # b is 0.1 above a for every seed: no spread at all, although both rows spread by 0.2.
  np.testing.assert_allclose([rows["<b>"]["over_first"][k] for k in ("mean", "low", "high")], 0.1)
  np.testing.assert_allclose(rows["c"]["over_previous"]["values"], [-0.1, 0, -0.2], atol=1e-9)
  np.testing.assert_allclose(rows["c"]["over_first"]["values"], [0, 0.1, -0.1], atol=1e-9)
  assert rows["a"]["final"]["values"] == list(FINAL["a"])


def test_only_seeds_that_both_rows_have_are_paired(tmp_path):
  planned = runs(tmp_path)
  for run in planned:
    if (run.row.name, run.seed) not in {("a", 1), ("<b>", 2)}:
      finish(run)
  found = collected(tmp_path)
  rows = {row["name"]: row for row in found["rows"]}
  assert rows["a"]["final"]["seeds"] == [0, 2] and rows["<b>"]["over_first"]["seeds"] == [0]
  assert rows["<b>"]["over_first"]["low"] is None  # one pair has no interval
  assert found["missing"] == ["a, seed 1", "<b>, seed 2"]
  assert "Missing: a, seed 1; <b>, seed 2." in table.markdown(STUDY, found)


def test_the_first_row_of_a_group_is_evaluated_before_training_for_all_of_it(tmp_path):
  """Its evaluation is theirs, by seed; until it is there they are missing."""
  study = STUDY._replace(before_once=True)
  planned = plan.make(study, tmp_path, 2, [], ["--config.steps=4"])
  assert [run.config.eval.on_start for run in planned] == [True, False, False] * 2
  assert plan.cost(planned[0].config).completions - plan.cost(planned[1].config).completions == 8 * 4
  for run in planned:
    finish(run)
    if not run.config.eval.on_start:
      file = run.workdir / "metrics.jsonl"
      kept = [line for line in file.read_text().splitlines() if '"step": 0' not in line]
      file.write_text("\n".join(kept) + "\n")
  whole = results.collect(study, planned, "")
  assert whole["missing"] == []
  for row in whole["rows"]:
    assert row["before"]["values"] == [0.2, 0.2] and row["final"]["values"] == list(FINAL[row["name"]][:2])
  planned[3].workdir.joinpath("checkpoints", "4").rmdir()
  assert results.collect(study, planned, "")["missing"] == [f"{name}, seed 1" for name in ("a", "<b>", "c")]


def test_equal_tokens_are_the_thriftiest_runs_and_between_evaluations_a_line(out):
  rows = {row["name"]: row for row in collected(out)["rows"]}
  assert {row["equal_tokens"] for row in rows.values()} == {400}
  assert rows["<b>"]["tokens"]["mean"] == 800
  halfway = [0.2 + (final - 0.2) / 2 for final in FINAL["<b>"]]  # 400 of its 800 tokens
  np.testing.assert_allclose(rows["<b>"]["at_equal_tokens"]["values"], halfway)
  assert rows["a"]["at_equal_tokens"]["values"] == list(FINAL["a"])


def test_other_things_that_runs_spend_are_made_equal_too(tmp_path):
  for run in runs(tmp_path):
    finish(run, **{"environment/steps": 30 if run.row.name == "a" else 10})
  study = STUDY._replace(spends={"tokens": "num_tokens", "environment steps": "environment/steps"})
  found = results.collect(study, runs(tmp_path), "python -m toy")
  rows = {row["name"]: row for row in found["rows"]}
  assert {row["equal_environment_steps"] for row in rows.values()} == {40}
  third = [0.2 + (final - 0.2) / 3 for final in FINAL["a"]]
  np.testing.assert_allclose(rows["a"]["at_equal_environment_steps"]["values"], third, rtol=1e-5)
  over = rows["c"]["over_first_at_equal_environment_steps"]["mean"]
  assert over == pytest.approx(0.6 - np.mean(third), rel=1e-4)
  text = table.markdown(study, found)
  assert "| at equal environment steps | over the first |" in text and "the first at equal environ" in text
  assert "equal tokens are 0.4 k; equal environment steps are 0.0 k, as many as the thriftiest" in text


def write_evaluations(run, values: list[float], spent: int) -> None:
  """Gives a finished run an evaluation after every step."""
  path = run.workdir / "metrics.jsonl"
  records = [json.loads(line) for line in path.read_text().splitlines()]
  kept = [r | ({"num_tokens": spent} if r["kind"] == "train" else {}) for r in records if r["kind"] != "eval"]
  kept += [{"step": i, "wall": 2.0, "kind": "eval", "eval/pass@1": x} for i, x in enumerate(values)]
  path.write_text("".join(f"{json.dumps(r)}\n" for r in sorted(kept, key=lambda r: r["step"])))


def test_the_mean_of_the_last_evaluations_is_read_as_far_along_the_budget(tmp_path):
  """b spends twice as much: its last three evaluations of four are read where half of that was spent."""
  for run in runs(tmp_path, seeds=1):
    finish(run)
    values = [0.0, 0.1, 0.2, 0.4, 0.8] if run.row.name == "<b>" else [0.2, 0.3, 0.3, 0.6, 0.3]
    write_evaluations(run, values, TOKENS[run.row.name])
  study = STUDY._replace(last=3)
  found = results.collect(study, runs(tmp_path, seeds=1), "python -m toy")
  rows = {row["name"]: row for row in found["rows"]}
  assert rows["a"]["final"]["values"] == [0.4] and rows["a"]["at_equal_tokens"]["values"] == [0.4]
  assert rows["<b>"]["final"]["values"] == pytest.approx([(0.2 + 0.4 + 0.8) / 3], rel=1e-5)
  assert rows["<b>"]["at_equal_tokens"]["values"] == pytest.approx([(0.1 + 0.15 + 0.2) / 3], rel=1e-5)
  assert rows["a"]["before"]["values"] == [0.2]
  assert "mean of the last 3 evaluations" in table.markdown(study, found)
  many = results.collect(study._replace(last=9), runs(tmp_path, seeds=1), "")["rows"][0]
  assert many["final"]["values"] == [0.375]  # what was before training is none of them
  curve = {"values": [[0.0, 0.1, 0.2, 0.4, 0.8]]}
  assert figures._level("eval/pass@1", curve, 3) == pytest.approx([1.4 / 3])
  assert figures._level("entropy", curve, 3) == pytest.approx([0.3])


def test_curves_of_training_are_means_over_the_last_steps_and_ratios_are_of_sums(out):
  curves = collected(out)["curves"]["a"]
  assert curves["entropy"]["steps"] == [1, 2, 3, 4]
  assert curves["entropy"]["values"][0] == [1, 1.5, 2, 2.5]
  assert curves["entropy"]["tokens"][0] == [100, 200, 300, 400]
  assert curves["up / down"]["values"][0] == [2.0] * 4
  assert curves["eval/pass@1"]["steps"] == [0, 4] and curves["eval/pass@1"]["tokens"][0] == [0, 400]
  assert "never" not in curves


def test_a_ratio_without_a_denominator_is_a_gap_and_not_a_number(tmp_path):
  for run in runs(tmp_path):
    finish(run, down=0.0)
  assert collected(tmp_path)["curves"]["a"]["up / down"]["values"][0] == [None] * 4
  json.dumps(collected(tmp_path), allow_nan=False)


def test_minutes_are_in_the_table_and_not_in_the_results(out):
  """Four steps of 9 s."""
  found = collected(out)
  rows = [line.split(" | ") for line in table.markdown(STUDY, found).splitlines() if line.startswith("| ")]
  assert rows[0][-1] == "minutes |" and rows[2][-1] == "0.6 |"
  assert '"minutes":' not in results.write(out, found).read_text()


def test_accuracy_before_training_is_said_of_every_group(out):
  found = collected(out)
  assert "20.0 [20.0, 20.0] before." in table.markdown(STUDY, found)
  found["rows"][2] |= dict(group="other", before=dict(mean=0.3, low=None, high=None))
  assert table.before(found) == "20.0 [20.0, 20.0], other 30.0"
  found["rows"][1]["before"] = dict(mean=0.25, low=None, high=None)
  assert table.before(found) == "20.0 [20.0, 20.0] to 25.0, other 30.0", "rows that start from another policy"


def test_results_depend_on_nothing_but_the_records(out):
  first = results.write(out, collected(out)).read_bytes()
  assert results.write(out, collected(out)).read_bytes() == first
  assert "wall" not in first.decode() and "time/" not in first.decode()


def test_code_and_machine_are_those_of_the_runs_wherever_they_are_collected(out):
  found = collected(out)["environment"]
  assert found == MACHINE | dict(commit="abc123", device="1 cpu")
  log = next(out.rglob("log.txt"))
  log.write_text(machine.note() + "x on 1 of 2 TPU v5 device(s)\n")
  found = collected(out)["environment"]
  assert found["device"] == "1 cpu, 2 TPU v5" and found["jax"] == f"{version('jax')}, 9.1"
  for path in out.rglob("log.txt"):
    path.write_text("")
  assert set(collected(out)["environment"].values()) == {"unknown"}


def test_the_table_has_intervals_beside_every_mean(out):
  found = collected(out)
  text = table.markdown(STUDY, found)
  lines = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
  assert lines[0][2] == "paper" and lines[2][2] == "30"
  assert lines[3][3] == lines[3][4] == "+10.0 [+10.0, +10.0]"
  assert lines[2][1].startswith("60.0 [") and "too narrow" in text  # three seeds


@pytest.mark.parametrize(
  "seeds, low, high, word",
  [
    (5, 0.01, 0.2, "better"),
    (5, -0.2, -0.01, "worse"),
    (5, -0.1, 0.1, "not told apart"),
    (4, 0.01, 0.2, "of 4 seeds: too few to tell"),
  ],
)
def test_words_follow_the_interval(seeds, low, high, word):
  difference = dict(mean=(low + high) / 2, low=low, high=high, seeds=list(range(seeds)))
  keys = ("over_previous", "over_first", "over_first_at_equal_tokens")
  (line,) = table.verdicts(STUDY, {"rows": [dict(label="b") | dict.fromkeys(keys, difference)]})
  assert line.count(word) == 3 and line.count(f"[{100 * low:+.1f}, {100 * high:+.1f}]") == 3


def test_figures_are_pngs_and_svgs_of_what_was_measured(out):
  drawn = figures.draw(STUDY, collected(out), out)
  assert [figure["title"] for figure in drawn] == [
    "Accuracy", "By tokens", "Along ε", "Of one row", "Odds", "Against a",
  ]  # fmt: skip
  for figure in drawn:
    assert (out / figure["png"]).read_bytes().startswith(b"\x89PNG")
    assert figure["svg"].startswith("<svg")
  assert [label for _, _, label in drawn[0]["legend"]] == ["a", "<b>", "c"]


def test_labels_that_would_lie_on_each_other_are_left_out():
  amounts = [str(2048 * n) for n in range(1, 9)]
  assert figures._apart(np.log(np.arange(1, 9)), amounts) == [*amounts[:5], "", amounts[6], ""]
  assert figures._apart(np.arange(5.0), list("12345")) == list("12345")


def test_a_swept_figure_has_the_final_or_mean_values_of_its_rows(out):
  found = collected(out)
  (both,) = figures._swept(STUDY.figures[2], STUDY, found)
  assert both.x.tolist() == [0.28, 0.4]
  np.testing.assert_allclose(both.mean, np.mean([1, 1.5, 2, 2.5]) + 1)  # over steps, and seeds 0 to 2
  (one,) = figures._swept(STUDY.figures[3], STUDY, found)
  assert one.x.tolist() == [0.4]
  (final,) = figures._swept(STUDY.figures[0]._replace(over="swept"), STUDY, found)
  np.testing.assert_allclose(final.mean, [70, 60])


def test_differences_from_the_first_row_are_dots_in_the_order_of_the_table(out):
  ax = figures._plotted(STUDY.figures[5], STUDY, collected(out))(in_picture=True)[0].axes[0]
  assert [text.get_text() for text in ax.get_yticklabels()] == ["<b>", "c"] and ax.yaxis_inverted()
  np.testing.assert_allclose(ax.lines[-1].get_xdata(), [10, 0], atol=1e-9)
  (intervals,) = ax.collections
  np.testing.assert_allclose(next(line[:, 0] for line in intervals.get_segments()), [10, 10], atol=1e-9)
  assert figures._plotted(STUDY.figures[5], STUDY, collected(out, seeds=1)) is None  # no interval


def test_a_section_is_in_table_page_and_figures(out):
  """What a study makes of results.json: rows' names and the mean of all."""
  drawn = Figure("Best", "points", {}, over="swept", x="tokens")

  def best(found):
    mean = float(np.mean([row["final"]["mean"] for row in found["rows"]]))
    line = figures.Line("best", *np.array([[1.0, 2.0]] * 4))
    return Section("What is best", "By mean.", ["row", "mean"], [["<all>", f"{mean:.3f}"]], drawn, (line,))

  study, found = STUDY._replace(sections=(best,)), collected(out)
  assert table.markdown(study, found).endswith("## What is best\n\nBy mean.\n\n"
    "| row | mean |\n| --- | --- |\n| <all> | 0.633 |\n")  # fmt: skip
  made = figures.draw(study, found, out)
  assert made[-1]["title"] == "Best" and (out / "best.png").exists() and len(made) == 7
  text = page.write(out, study, found, made, runs(out)[0]).read_text()
  assert "<h2>What is best</h2>" in text and "&lt;all&gt;<td>0.633" in text


def test_the_page_escapes_names_and_needs_nothing_but_itself(out):
  found = collected(out)
  text = page.write(out, STUDY, found, figures.draw(STUDY, found, out), runs(out)[0]).read_text()
  assert "<b>" not in text and "Is &lt;b&gt; better?" in text
  assert "<script" not in text and "http://" not in text.replace("http://www.w3.org", "")
  assert text.count("<svg") == 6 and "python -m toy" in text and "&#34;group_size&#34;: 4" in text


# Sweeps of any recipe.


@pytest.mark.parametrize(
  "name, keys",
  [
    ("epsilon_high.py", {"objective.surrogate.high"}),
    ("epsilon_high.py:sequence", {"objective.surrogate.high"}),
    ("group_size.py", {"rollout.group_size"}),
    ("group_size.py:256", {"rollout.group_size", "rollout.prompts"}),
    ("clip_ranges.py", {"objective.surrogate.low", "objective.surrogate.high"}),
  ],
)
def test_a_sweep_is_rows_of_any_recipe(name, keys, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)  # of the package, wherever it is called
  study = sweep.study("configs/dapo.py:tiny", f"configs/sweeps/{name}")
  assert all(set(row.changes) == keys for row in study.rows) and len(study.rows) >= 5
  planned = plan.make(study, tmp_path, 1, [], [])
  assert len({run.workdir for run in planned}) == len(study.rows)
  if "256" in name:
    assert all(run.config.rollout.prompts * run.config.rollout.group_size == 256 for run in planned)


@pytest.mark.parametrize(
  "text, sentence",
  [
    (None, "there is no file"),
    ("x = 1", r"has no function get_sweep\(\)"),
    ("def get_sweep(): return {}", "must return a list of dicts"),
    ("def get_sweep(): yield from ()", "must return a list of dicts"),
    ("def get_sweep(): return [{}][1]", r"get_sweep\(\) raised IndexError: list index out of range"),
  ],
)
def test_what_is_no_sweep_is_refused(text, sentence, tmp_path):
  path = tmp_path / "sweep.py"
  if text:
    path.write_text(text)
  with pytest.raises(ValueError, match=sentence):
    sweep.study("configs/dapo.py:tiny", str(path))


def test_a_sweep_may_yield_its_rows(tmp_path):
  (tmp_path / "sweep.py").write_text('def get_sweep(): yield {"steps": 3}\n')
  assert [row.changes for row in sweep.study("dapo:tiny", str(tmp_path / "sweep.py")).rows] == [{"steps": 3}]


# The page that explains them.

PAGE = (Path(__file__).parents[2] / "docs" / "studies.md").read_text()


def test_the_pages_study_can_be_planned(tmp_path):
  code = PAGE.split("```python\n")[1].split("```")[0]
  names = {"__name__": "page"}
  exec(code, names)
  assert len(plan.make(names["study"]("tiny"), tmp_path, 2, [], [])) == 4


SWEEPS = [line for line in PAGE.splitlines() if line.startswith("    grpojax sweep")]


@pytest.mark.parametrize("line", SWEEPS)
def test_the_pages_sweeps_can_be_planned(line, tmp_path):
  flags = dict(word.removeprefix("--").split("=") for word in line.split()[2:])
  study = sweep.study(flags["config"], flags["sweep"])
  assert len(plan.make(study, tmp_path, 1, [], [])) == len(study.rows)


def test_the_page_has_every_flag():
  options = [word for action in study_command.parser("x")._actions for word in action.option_strings]
  assert all(word in PAGE for word in options if word not in ("-h", "--help"))


@pytest.mark.parametrize(
  "visible, at_once, seen, share",
  [
    ("2,5", 1, [None], None),  # a process alone has all that it would have
    ("2,5", 2, ["2", "5"], None),
    ("2,5", 5, ["2", "5", "2", "5", "2"], "0.250"),  # three on the first
    ("0", 4, ["0"] * 4, "0.188"),
    ("", 3, [None] * 3, None),  # hidden by their user
  ],
)
def test_workers_share_the_gpus_that_are_visible_and_their_memory(visible, at_once, seen, share, monkeypatch):
  monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
  given = [execute.device(worker, at_once) for worker in range(at_once)]
  chips = [None] if at_once == 1 else ["0", "1", "2", "3", "4"]
  assert [env.get("CUDA_VISIBLE_DEVICES") for env in given] == seen
  assert {env.get("XLA_PYTHON_CLIENT_MEM_FRACTION") for env in given} == {share}
  assert [env.get("TPU_VISIBLE_CHIPS") for env in given] == chips[:at_once]


def test_runs_of_a_group_wait_until_its_first_fills_the_cache_no_longer(tmp_path):
  rows = tuple(Row(name, "configs/base.py:tiny", group=group) for group in "xy" for name in "ab")
  left = execute.in_turn(plan.make(STUDY._replace(rows=rows), tmp_path, 2, [], []))
  firsts = {"x": left[0], "y": left[1]}
  filling, order = list(firsts.values()), []
  for _ in range(3):
    order.append(execute.startable(left, firsts, filling))
    if order[-1]:
      left.remove(order[-1])
  assert order == [firsts["x"], firsts["y"], None]  # nobody else, while both fill it
  found = execute.startable(left, firsts, [firsts["x"]])
  assert found.row.label == "y: b" and found.seed == 0
  assert execute.startable(left, firsts, []).row.label == "x: b"
