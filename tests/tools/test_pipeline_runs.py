"""Whole pipelines at the smallest size: killed anywhere; every recipe from its base to its report."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import subprocesses

from grpojax.config import commandline, recipe
from grpojax.runtime import metrics
from grpojax.tools.pipeline import chain, cost, stages
from grpojax.tools.pipeline.manifest import NAME
from grpojax.train import shared

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # benchmarks/ is not installed

from benchmarks.endurance import compare  # noqa: E402

pytestmark = pytest.mark.slow
CHAIN = """
from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config():
  c = base.get_config("tiny")
  c.name = "chain"
  c.verbose, c.mesh.data, c.model.num_hidden_layers, c.remat = False, 1, 1, "none"
  c.cold_start.steps = 60
  c.rollout.update(max_tokens=32, segment=8)
  c.data.update(train=24, test=4, validation=4)
  c.eval.update(every=9, prompts=4, samples=4)
  c.checkpoint.update(every=1, keep=5)
  c.reward.accuracy = dict(fn="subprocesses:odd")
  c.stages = [
    ConfigDict(dict(name="grow", kind="sample", init="base")),
    ConfigDict(dict(name="learn", kind="sft", init="base", samples="grow", sft=dict(batch_size=4))),
    ConfigDict(dict(name="rl", kind="rl", init="previous")),
    ConfigDict(dict(name="judge", kind="sample", sample=dict(rows="pairs", by="judge", prompts=8))),
    ConfigDict(dict(name="prefer", kind="preference", samples="judge", preference=dict(batch_size=2))),
    ConfigDict(dict(name="near", kind="distill", init="base", teacher="rl")),
    ConfigDict(dict(name="look", kind="evaluate", init="previous")),
  ]
  c.judge.update(marker="#", most=999, max_tokens=32)
  return c
"""
# While sampling; while learning; between what was learned and its note; in a save of RL, which is then done
# again from the save before; between two stages; while a judge says; while pairs are learned; in a step of
# distillation; while evaluating.
POINTS = (
  "answers:2", "batch:3", "finish:1", "save:2", "begin:2", "answers:4", "pairs:2", "teacher:2", "answers:2",
)  # fmt: skip


def files(folder):
  """What stages hand on and stand on, and every answer, byte by byte."""
  names = "manifest.json", "policy/*", "samples.jsonl", "learned.jsonl", "items.jsonl", "summary.json"
  found = [path for name in names for path in (folder / "runs").glob(f"*/{name}")]
  return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_a_chain_that_is_killed_in_stages_and_between_them_ends_with_the_bytes_of_a_whole_one(tmp_path):
  cache = subprocesses.cache_in(tmp_path / "cache")
  (tmp_path / "chain.py").write_text(CHAIN)
  for name in ("cut", "whole"):  # each with the same names in it, so that no byte tells one from the other
    (tmp_path / name).mkdir()
  starts = " ".join([*(f"cut={point}" for point in POINTS), "cut=", "whole="])
  words = [starts, str(tmp_path / "chain.py"), "--workdir=runs", f"--config.cache_dir={cache}"]
  done = subprocess.run(
    [sys.executable, ROOT / "tests" / "tools" / "pipeline_killed.py", *words],
    cwd=tmp_path, env=subprocesses.environment(), capture_output=True, text=True,
  )  # fmt: skip
  ended = [int(status) for status in re.findall(r"status (-?\d+)$", done.stdout, re.M)]
  assert ended == [-9] * len(POINTS) + [0, 0], done.stdout + done.stderr
  cut, whole = files(tmp_path / "cut"), files(tmp_path / "whole")
  assert cut.keys() == whole.keys() and len(whole) > 20
  assert [name for name in whole if cut[name] != whole[name]] == []
  for name in ("learn", "rl", "prefer", "near"):
    different = compare.differences(*(tmp_path / of / "runs" / name for of in ("cut", "whole")))
    assert not any(different.values()), (name, different)


def quiet(cache):
  return [f"--config.cache_dir={cache}", "--config.verbose=False", "--config.mesh.data=1"]


def command(cache, *words):
  done = subprocesses.run_one("grpojax", "pipeline", *words, *quiet(cache))
  return done.code, done.out + done.err


# A policy that writes characters and ends, and is right by a coin.
COIN = "--config.reward.accuracy={'fn': 'subprocesses:odd'}", "--config.cold_start.steps=100"
# Of a judge, what it says of an answer is as good as its own answers.
FORM = "--config.judge.marker=#", "--config.judge.most=999", "--config.judge.max_tokens=32"


@pytest.mark.usefixtures("quick_programs")
@pytest.mark.parametrize("name", recipe.names(recipe.PIPELINES))
def test_a_recipe_runs_from_its_base_to_its_report_and_then_has_nothing_to_do(cache, tmp_path, name):
  form = () if name == "self_rewarding_grpo" else FORM  # whose scores are one token each, and none is sampled
  words = f"{name}:tiny", f"--workdir={tmp_path / 'run'}", *COIN, *form
  flags = [f"--config={name}:tiny", *quiet(cache), *COIN, *form]
  found = chain.find(commandline.config_of(flags, recipe.PIPELINES, stages.check_keys_of), tmp_path / "run")
  assert chain.run(found, chain.choose(found, "", ""), shared.anew)
  done = [p.parent.name for p in (tmp_path / "run").glob(f"*/{NAME}") if "left" in json.loads(p.read_text())]
  assert {"base", "before", "after"} <= set(done)
  html = (tmp_path / "run" / "report.html").read_text()
  assert "Accuracy after each stage" in html and "after against before: pass@1 " in html
  for stage in done:
    assert f'<th scope="row"><a href="{stage}/report.html">{stage}<' in html
    assert (tmp_path / "run" / stage / "report.html").is_file()
    assert cost.spent(metrics.read(tmp_path / "run" / stage))[1] > 0, stage
  code, said = command(cache, *words)
  assert code == 0 and "0 to run" in said, said
  other = [f"--config.{key}=3" for key in ("sft.steps", "preference.steps", "steps")]
  code, said = command(cache, *words, *other, "--dry_run")
  assert code == 0 and "stale: config." in said, said


def test_rows_that_a_person_edits_are_learned_as_they_are_and_only_if_asked_for(cache, tmp_path):
  """A stale stage is refused, --from moves it aside, and nothing before it is done again."""
  workdir = tmp_path / "run"
  words = "star:tiny", f"--workdir={workdir}", *COIN
  code, said = command(cache, *words, "--only=base")
  assert code == 0 and not (workdir / "before").exists(), said
  code, said = command(cache, *words, "--only=improve1")
  assert code == 1 and "stage 'improve1' stands on 'grow1', which is left; run that one first" in said
  for only in ("grow1", "improve1"):
    code, said = command(cache, *words, f"--only={only}")
    assert code == 0, said
  rows = (workdir / "grow1" / "samples.jsonl").read_text().splitlines(keepends=True)
  (workdir / "grow1" / "samples.jsonl").write_text("".join(rows[:-1]) + rows[0])
  code, said = command(cache, *words)
  assert code == 1 and "stage 'improve1' is stale (grow1/samples.jsonl has changed); --from=improve1" in said
  code, said = command(cache, *words, "--only=improve1")
  assert code == 0 and "was edited since stage 'grow1' wrote it" in said, said
  assert (workdir / "replaced" / "improve1-0" / "policy").is_dir()
  assert (workdir / "improve1" / "learned.jsonl").read_text() == "".join(rows[:-1]) + rows[0]
  assert metrics.read(workdir / "improve1")[-1]["step"] == 4


def test_a_policy_that_is_never_right_leaves_nothing_to_learn_and_the_answers_stay(cache, tmp_path):
  code, said = command(cache, "star:tiny", f"--workdir={tmp_path / 'run'}", "--only=base", *COIN)
  assert code == 0, said
  env = subprocesses.environment(WRONG="1")
  words = ["-m", "grpojax", "pipeline", "star:tiny", f"--workdir={tmp_path / 'run'}", "--only=grow1"]
  words += [*COIN, f"--config.cache_dir={cache}", "--config.verbose=False", "--config.mesh.data=1"]
  (done,) = subprocesses.forked([words], [env])
  said = done.out + done.err
  assert done.code == 1 and "error: stage 'grow1': kept 0 of 64 answers" in said, said
  assert "raise config.sample.prompts or config.sample.samples, or start it from a better" in said
  assert len(metrics.read(tmp_path / "run" / "grow1", "items")) == 16
  html = (tmp_path / "run" / "grow1" / "report.html").read_text()
  assert "kept 0 of 64 answers" in html and '<th scope="row">wrong<td>64<td>100.0' in html
