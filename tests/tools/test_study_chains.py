"""Studies whose runs are pipelines: their records as one run's, and when one is done."""

import json

import pytest
from etils import epath

from experiments import distillation, r1, self_teaching
from experiments import stages as chain_stages
from grpojax.tools.pipeline import manifest, stages
from grpojax.tools.pipeline.manifest import keys
from grpojax.tools.study import Row, Study, chains, cluster, plan, results

STUDY = Study("toy", "A toy", "?", (Row("RL", "experiments/self_teaching.py:tiny-rl"),))
ACCURACY = {"before": 0.25, "rl1_done": 0.5, "rl2_done": 0.75, "rl3_done": 0.7}


def finish(run, accuracy):
  """Leaves what a finished chain leaves, of which nothing ran."""
  for stage in stages.read(run.config):
    folder = run.workdir / stage.name
    folder.mkdir(parents=True)
    if stage.kind == "evaluate":
      suites = {stage.config.eval.split: {"metrics": {"pass@1": {"value": accuracy[stage.name]}}}}
      (folder / "summary.json").write_text(json.dumps(dict(suites=suites)))
      records = [dict(step=0, kind="eval", num_tokens=99, wall=1.0, **{"time/eval": 1.0})]
    else:
      ours = dict(kind="train", num_tokens=10, wall=1.0, **{"time/step": 2.0})
      records = [dict(step=0, kind="eval", wall=1.0, **{"eval/pass@1": 0.9})]
      records += [ours | dict(step=step) for step in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records))
    manifest.begin(stage, run.workdir)
    manifest.finish(stage, run.workdir, [])


def test_stages_follow_each_other_with_their_evaluations(tmp_path):
  (run,) = plan.make(STUDY, tmp_path, 1, [], [])
  assert plan.command(run).startswith("python -m grpojax pipeline --config=experiments/self_teaching.py")
  assert not plan.is_done(run)
  finish(run, ACCURACY)
  assert plan.is_done(run)
  found = plan.records(run)
  evals = [(r["step"], r["eval/pass@1"]) for r in found if r["kind"] == "eval"]
  within = lambda step: (step, 0.9)  # before the first step of a stage, by itself
  assert evals == [(0, 0.25), within(0), (2, 0.5), within(2), (4, 0.75), within(4), (6, 0.7)]
  assert [r["step"] for r in found if r["kind"] == "train"] == [1, 2, 3, 4, 5, 6]
  (row,) = results.collect(STUDY, [run], "")["rows"]
  assert row["before"]["values"] == [0.25] and row["final"]["values"] == [0.7]
  assert row["tokens"]["values"] == [60.0] and row["minutes"] == pytest.approx((6 * 2 + 4) / 60)


def test_a_pipeline_is_submitted_as_one_and_not_to_a_bucket(tmp_path):
  (run,) = plan.make(STUDY, tmp_path, 1, [], [])
  script = cluster.write("slurm", "toy", tmp_path, [run], "python -m toy").read_text()
  assert " launch/slurm.sh pipeline --config=" in script
  with pytest.raises(ValueError, match="--out=gs://bucket/x is a bucket, and stages of a pipeline"):
    plan.make(STUDY, epath.Path("gs://bucket/x"), 1, [], [])


def test_a_chain_of_another_config_is_refused_and_one_that_lacks_a_stage_is_not_done(tmp_path):
  (run,) = plan.make(STUDY, tmp_path, 1, [], [])
  finish(run, ACCURACY)
  (other,) = plan.make(STUDY, tmp_path, 1, [], ["--config.optimizer.learning_rate=0.5"])
  with pytest.raises(ValueError, match=r"of another config \(stage 'rl1': config.optimizer.learn"):
    plan.is_done(other)
  (run.workdir / "rl3_done" / manifest.NAME).unlink()
  assert not plan.is_done(run)


def test_of_a_student_its_own_tokens_are_counted_apart(tmp_path):
  made = distillation.study("tiny")
  (run,) = plan.make(made, tmp_path, 1, ["2"], [])
  names = [stage.name for stage in stages.read(run.config)]
  assert names == ["base", "student", "before", "teacher", "answers", "sft", "sft_done"]
  finish_all = {"before": 0.1, "sft_done": 0.4}
  finish(run, finish_all)
  (run.workdir / "answers" / "metrics.jsonl").write_text(
    json.dumps(dict(step=0, kind="eval", num_tokens=7, wall=1.0, **{"time/eval": 1.0})) + "\n"
  )
  spent = [(r["num_tokens"], r[chains.OWN]) for r in plan.records(run) if r["kind"] == "train"]
  assert spent == [(10, 0), (10, 0), (7, 0), (10, 10), (10, 10)]
  evals = [(r["step"], r["eval/pass@1"]) for r in plan.records(run) if r["kind"] == "eval"]
  assert evals == [(0, 0.1), (3, 0.9), (5, 0.4)]  # none of the teacher's; the student's before it learns


def test_a_table_has_accuracy_and_tokens_after_each_stage(tmp_path):
  made = self_teaching.study("tiny")
  made = made._replace(rows=STUDY.rows)
  found = plan.make(made, tmp_path, 3, [], [])
  for run in found:
    finish(run, {name: value + run.seed / 100 for name, value in ACCURACY.items()})
  collected = results.collect(made, found, "")
  section = chain_stages.after_each(collected)
  assert [row[1] for row in section.body] == ["before", "rl1", "rl2", "rl3"]
  assert [row[2].split()[0] for row in section.body] == ["26.0", "51.0", "76.0", "71.0"]
  assert [row[3].split()[:1] for row in section.body] == [[], ["+25.0"], ["+25.0"], ["-5.0"]]
  assert [row[4] for row in section.body] == ["0.0", "0.0", "0.0", "0.1"]
  for label, curves in collected["curves"].items():  # as another row's stages may have them
    collected["curves"][label] = dict(reversed(curves.items()))
  assert chain_stages.after_each(collected).body == section.body


@pytest.mark.slow
def test_rows_of_r1_lack_their_stages_and_nothing_else(tmp_path):
  trained = {}
  for run in plan.make(r1.study("tiny"), tmp_path, 1, [], []):
    trained[run.row.name] = {s.name: s for s in stages.read(run.config) if s.kind not in ("base", "evaluate")}
  whole = trained["whole"]
  assert [*whole] == ["cold", "reason", "reject", "again", "all"]
  for name, without in r1.ROWS.items():
    assert [*trained[name]] == [stage for stage in whole if stage not in without]
    assert all(keys(stage) == keys(whole[of]) for of, stage in trained[name].items())
  assert trained["- cold start"]["reason"].init == trained["RL alone"]["reason"].init == "base"
  assert trained["- first RL"]["reject"].init == "cold"
  assert trained["- rejection sampling and SFT"]["all"].init == "reason"


@pytest.mark.slow
def test_every_round_of_self_teaching_is_measured(tmp_path):
  for run in plan.make(self_teaching.study("tiny"), tmp_path, 1, [], []):
    measured = [stage.name for stage in stages.read(run.config) if stage.kind == "evaluate"]
    rounds = [name for name in measured if name.rstrip("_done")[-1].isdigit()]
    assert measured[0] == "before" and len(rounds) == self_teaching.ROUNDS
