"""What a chain costs: tokens at most and predicted seconds of what is left, both of what is done."""

import json
import shutil

import pytest
from ml_collections import ConfigDict
from pipeline_toys import ALL, chain_of, config, done_chain, finish, written

from grpojax.tools.pipeline import chain, cost, manifest, stages
from grpojax.tools.pipeline.manifest import BEGUN


@pytest.fixture
def done(tmp_path):
  return done_chain(tmp_path)


def test_a_dry_run_says_of_each_stage_how_far_it_is(done, capsys):
  _, workdir = done
  shutil.rmtree(workdir / "rl")
  record = {"step": 1, "kind": "train", "wall": 0.0, "num_tokens": 30, "time/update": 2.0}
  (workdir / "base" / "metrics.jsonl").write_text(json.dumps(record) + "\n")
  found = stages.read(config(*ALL, **{"sft.steps": 9}))
  chain.describe(chain_of(found, workdir), [])
  said = capsys.readouterr().out.splitlines()
  shown = [line.split(":")[1].split(";")[0].strip() for line in said]
  assert shown == ["done", "done", "stale", "stale", "left"]
  assert "config.sft.steps: 4 -> 9" in said[2] and "tokens are learned" in said[2]
  assert said[0].endswith("; took 30 tokens and 2.0 s")
  assert said[4].endswith("tokens are sampled, its time is unknown until the first stage of its kind has run")


def test_a_predicted_time_is_at_the_pace_of_the_stages_of_its_kind_that_have_run(tmp_path, capsys):
  """Also at that of a stale one, whose manifest says with which numbers it ran; by hand below."""
  of = lambda name, steps: dict(name=name, kind="rl", init="base", steps=steps)
  small = {"rollout.prompts": 2, "rollout.group_size": 2, "rollout.max_tokens": 10, "eval.prompts": 4}
  small |= {"eval.samples": 1, "eval.max_tokens": 10, "eval.every": 100, "eval.on_start": False}
  small |= {"dynamic_sampling.enabled": False}
  record = lambda step, **more: dict(step=step, wall=1.0, kind="train") | more
  found = stages.read(config(of("one", 4), of("two", 4), **small))
  finish(found[:2], tmp_path)
  # 4 steps of 4 completions of 10 tokens take 8 s, an evaluation of 4 takes 3 s.
  took = {"time/rollout": 5.0, "time/update": 3.0}, {"time/eval": 3.0, "time/step": 99.0}
  evaluated = record(4, **took[1]) | dict(kind="eval")
  written(tmp_path / "one", "metrics", record(4, num_tokens=50, **took[0]), evaluated)
  chain.describe(chain_of(found, tmp_path), [])
  *_, one, two = capsys.readouterr().out.splitlines()
  assert one.endswith("took 50 tokens and 11.0 s")
  assert two.endswith(": left; at most 200 tokens are sampled, predicted time 11.0 s")
  found = stages.read(config(of("one", 8), of("two", 16), **small))
  chain.describe(chain_of(found, tmp_path), [])
  *_, one, two = capsys.readouterr().out.splitlines()
  assert one.endswith(": stale: config.steps: 4 -> 8; at most 360 tokens are sampled, predicted time 19.0 s")
  assert two.endswith("predicted time 35.0 s")  # 4 · 8 + 3
  manifest.begin(found[2], tmp_path)
  written(tmp_path / "two", "metrics", record(1, num_tokens=30, **{"time/rollout": 7.0}))
  states = manifest.states(found, tmp_path) | {"two": manifest.State(BEGUN)}
  chain.describe(chain.Chain("toy", tmp_path, found, states), [])
  two = capsys.readouterr().out.splitlines()[-1]
  assert two.endswith(": begun; at most 680 tokens are sampled, 30 so far, predicted time 28.0 s")


def test_a_base_from_the_cache_and_another_kind_say_nothing_of_time(tmp_path):
  found = {stage.name: stage for stage in stages.read(config(*ALL))}
  written(tmp_path, "metrics", dict(step=9, wall=1.0, kind="cold_start", **{"time/start": 1.0}))
  assert cost.pace(found["base"], tmp_path) is None
  of_eval = dict(step=0, wall=1.0, kind="eval", num_tokens=5, **{"time/eval": 6.0})
  written(tmp_path, "metrics", of_eval)
  paces = [cost.pace(found["look"], tmp_path)]
  assert cost.predicted(found["grow"], paces) is None and cost.predicted(found["look"], paces) == 6.0
  with found["look"].config.unlocked():
    del found["look"].config.data.test
    found["look"].config.data.test = ConfigDict()  # of files: so many questions as before
  assert cost.predicted(found["look"], paces) is None
  assert cost.predicted(found["look"], [cost.pace(found["look"], tmp_path)]) == 6.0


def test_what_a_stage_costs_at_most_is_what_its_config_asks_for():
  changes = {"data.test": 8, "data.validation": 3, "data.train": 100, "eval.samples": 3}
  changes |= {"rollout.max_tokens": 10, "cold_start.steps": 5, "cold_start.batch_size": 4}
  changes |= {"sample.prompts": 6, "sample.samples": 2}
  asked = dict(rows="pairs", by="judge")
  judged = dict(name="judged", kind="sample", init="base", sample=asked)
  found = stages.read(config(*ALL, judged, **changes, **{"judge.samples": 3, "judge.max_tokens": 7}))
  tokens = {stage.name: cost.at_most(stage) for stage in found}
  assert tokens["base"] == (5 * 4 * 10, "learned") and tokens["look"] == ((8 + 3) * 3 * 10, "sampled")
  assert tokens["grow"] == (6 * 2 * 10, "sampled")
  assert tokens["judged"] == (6 * 2 * (10 + 3 * 7), "sampled")
