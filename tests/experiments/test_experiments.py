"""The studies as they are run: killed, stopped and resumed, shown in a browser; every row of each legal."""

import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import data_toys
import pytest
import subprocesses
import test_local
from study_toys import STUDY, finish, runs

from experiments import (
  credit,
  dapo_ablation,
  distillation,
  epsilon_high,
  group_size,
  isocompute,
  ladder,
  mismatch,
  pass_at_k,
  r1,
  regimes,
  self_teaching,
  staleness,
  variants,
)
from grpojax.config import schema
from grpojax.data import templates
from grpojax.runtime import metrics
from grpojax.tools.study import command as study_command
from grpojax.tools.study import figures, page, plan, results

BROWSER = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
STUDIES = (
  credit, dapo_ablation, distillation, epsilon_high, group_size, isocompute, ladder, mismatch, pass_at_k, r1,
  regimes, self_teaching, staleness, variants,
)  # fmt: skip


OFTEN = (dapo_ablation,)


@pytest.mark.parametrize(
  "study",
  [pytest.param(one, id=one.__name__, marks=[] if one in OFTEN else pytest.mark.slow) for one in STUDIES],
)
def test_every_row_of_every_study_is_legal(study, tmp_path):
  for scale in study.SCALES if study is dapo_ablation else ("mini", "tiny"):
    made = study.study(scale)
    plan.make(made, tmp_path, 1, [], [])
    named = {word for row in made.rows for word in (row.name, row.label)}
    assert all(set(figure.rows) <= named for figure in made.figures)


def test_the_ablations_rows_differ_in_what_the_paper_changed():
  """From naive GRPO without KL to the recipe of configs/dapo.py, but for the filter."""
  made = [run.config for run in plan.make(dapo_ablation.study("mini"), Path("x"), 1, [], [])]
  naive, full = made[0], made[-1]
  assert not naive.objective.penalty and not naive.objective.select and not naive.dynamic_sampling.enabled
  assert naive.objective.surrogate.high == naive.objective.surrogate.low == 0.2
  assert naive.reward.soft_overlong.weight == 0 and full.reward.soft_overlong.weight == 1
  assert full.reward.accuracy.weight == 2  # 2 and 0 are 1 and -1, but for the group's mean
  recipe = plan.commandline.config_of(["--config=configs/dapo.py"])
  for slot in ("advantage", "rescale", "ratio", "surrogate", "aggregate", "penalty", "correct"):
    assert full.objective[slot].to_dict() == recipe.objective[slot].to_dict()
  assert full.dynamic_sampling == recipe.dynamic_sampling
  keys = [set(_flat(b)) ^ set(_flat(a)) for a, b in itertools.pairwise(made)]
  first_words = [{key.split("=")[0] for key in changed} for changed in keys]
  assert first_words == [
    {"objective.select.finished.fn"},
    {"objective.surrogate.high"},
    {"reward.soft_overlong.weight"},
    {"objective.aggregate.fn"},
    {"dynamic_sampling.enabled"},
  ]


def _flat(config) -> list[str]:
  return [f"{k}={v}" for k, v in schema.flatten(config.to_dict()).items()]


# As a person runs it, but in this process, where their runs share programs with other tests.


@pytest.fixture
def study_here(monkeypatch, quick_studies, cache, tmp_path):
  """Returns study(module, *words), which plans, runs and concludes."""

  def study(module, *words):
    words = [*words, f"--config.cache_dir={cache}", "--config.mesh.data=1", f"--out={tmp_path}"]
    monkeypatch.setattr(sys, "argv", [module.__name__, "--scale=tiny", *words])
    study_command.run(module.__name__, module.study, ("tiny",))

  return study


@pytest.mark.slow
@pytest.mark.parametrize(
  "study, rows, section",
  [
    (isocompute, "1,2", "## The frontier"),
    (regimes, "1,3,long chains; rambling 0.5; one in: naive GRPO", "## The map, at equal tokens"),
    (pass_at_k, "1,2", "## pass@1 and pass@k"),
    (distillation, "1,3", ""),
  ],
)
def test_a_tiny_study_runs_and_concludes(study, rows, section, study_here, tmp_path):
  """Two rows of each, and long chains, whose task is the experiments' own; distillation's are pipelines."""
  study_here(study, "--seeds=1", f"--rows={rows}", "--config.data.train=64")
  assert section in (tmp_path / "table.md").read_text() and (tmp_path / "report.html").exists()
  assert len(json.loads((tmp_path / "results.json").read_text())["rows"]) == len(rows.split(","))


@pytest.mark.slow
def test_credit_for_turns_is_compared_at_equal_environment_steps(study_here, tmp_path):
  """GRPO and ESSA on a tiny desk, two seeds each."""
  few = "--config.steps=3", "--config.eval.every=3", "--config.cold_start.steps=20"
  study_here(credit, "--seeds=2", "--rows=desk: trajectory,desk: ESSA", *few)
  first, essa = json.loads((tmp_path / "results.json").read_text())["rows"]
  assert first["label"] == "desk: trajectory"
  assert essa["over_first_at_equal_environment_steps"]["low"] is not None
  assert essa["environment_steps"]["mean"] > 3 * 16  # three steps of 16 trajectories, resets among them


# As a person runs it.


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory):
  """A cache that the runs of one study share, and whose programs are counted."""
  return tmp_path_factory.mktemp("cache")


def command(cache, out, *more) -> list[str]:
  return [
    "experiments.dapo_ablation", "--scale=tiny", "--rows=2,3", "--seeds=1", "--parallel=1",
    f"--out={out}", f"--config.cache_dir={cache}", "--config.steps=4",
    "--config.checkpoint.every=1", "--config.eval.every=2", "--config.data.train=64", *more,
  ]  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(own_cache, tmp_path_factory):
  """(folder of a finished study, programs in the cache after its first row, and after the second)"""
  out = tmp_path_factory.mktemp("undisturbed")
  one = subprocesses.run_one(*command(own_cache, out), "--rows=2")
  assert one.code == 0, one.err
  first = programs(own_cache)
  done = subprocesses.run_one(*command(own_cache, out))
  assert done.code == 0, done.err
  assert "1 to do" in done.out  # the first row was there
  return out, first, programs(own_cache)


def programs(cache) -> set[str]:
  return {path.name for path in (cache / "programs").iterdir() if not path.name.endswith("-atime")}


@pytest.mark.slow
def test_the_papers_scale_runs_end_to_end_at_a_fraction_of_every_size(tmp_path):
  """Its own data, mesh, updates and warm-up; a Qwen2.5 of random weights, which hardly ever ends."""
  folder = test_local.make_folder(tmp_path / "qwen")
  asked = (templates.TEMPLATES["answer_line"].format(question=f"What is {i} + {i}?") for i in range(40))
  train = [
    {"prompt": [{"role": "user", "content": text}], "reward_model": {"ground_truth": str(2 * i)}}
    for i, text in enumerate(asked)
  ]
  train = data_toys.write(tmp_path / "dapo.jsonl", train)
  test = [{"problem": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(100, 130)]
  test = data_toys.write(tmp_path / "aime.jsonl", test)
  sizes = {
    "steps": 2, "updates_per_rollout": 2, "microbatches": 1, "logprob_chunk": 8, "mesh.cpu_devices": 4,
    "rollout.prompts": 4, "rollout.group_size": 4, "rollout.max_tokens": 15, "rollout.slots": 16,
    "rollout.segment": 8, "data.prompt_budget": 321, "rollout.prefill_chunk": 321, "eval.samples": 2,
    "eval.prompts": 4, "eval.every": 2, "checkpoint.every": 2, "dynamic_sampling.max_tries": 1,
    "reward.accuracy.fn": "study_toys:coin",
    "model.dtype": "float32",  # XLA's CPU compiler fails on some all-reduces in bfloat16
  }  # fmt: skip
  done = subprocesses.run_one(
    "experiments.dapo_ablation", "--scale=paper", "--rows=1,6", "--seeds=1", "--parallel=1",
    f"--out={tmp_path / 'out'}", f"--config.model.path={folder}", f"--config.data.path={train}",
    f"--config.data.test.aime2024.path={test}",
    f"--config.cache_dir={subprocesses.cache_in(tmp_path / 'cache')}",
    *(f"--config.{key}={value}" for key, value in sizes.items()),
  )  # fmt: skip
  assert done.code == 0, done.out + done.err
  log = (tmp_path / "out/runs/dynamic-sampling/seed0/log.txt").read_text()
  assert "mesh data 1 x fsdp 1 x tensor 1 x expert 1 x context 4 on 4 of 4 cpu" in log
  assert "sampler: mesh data 1 x fsdp 1 x tensor 4" in log and "aime2024: 30 of 30 rows" in log
  steps = [r for r in metrics.read(tmp_path / "out/runs/naive-grpo/seed0") if r["kind"] == "train"]
  assert len(steps) == 2 and all(step["grad_norm"] > 0 for step in steps)  # the filter leaves row 6 none
  assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.slow
def test_another_number_compiles_nothing(undisturbed):
  """Row 3 is row 2 with another ε_high."""
  _, first, both = undisturbed
  assert first and both == first


@pytest.mark.slow
def test_rows_and_seeds_in_one_process_share_its_programs_and_have_the_numbers_of_a_run_of_their_own(
  undisturbed, own_cache, tmp_path
):
  """The second row, after the first one in a worker, against its command; the worker compiled once."""
  out, _, _ = undisturbed
  done = subprocesses.run_one(*command(own_cache, tmp_path), "--seeds=2", "--rows=3")
  assert done.code == 0, done.err
  first, second = (tmp_path / f"runs/clip-higher/seed{seed}/log.txt" for seed in (0, 1))
  assert "compiling update" in first.read_text() and "compiling" not in second.read_text()
  alone = json.loads((tmp_path / "results.json").read_text())["rows"][0]["command"]
  words = [f"--workdir={tmp_path / 'alone'}" if "--workdir" in word else word for word in shlex.split(alone)]
  words = [word.replace("seed=0", "seed=1") for word in words]
  assert subprocesses.run_one(*words[2:]).code == 0
  for workdir, same in (tmp_path / "runs/clip-higher/seed1", tmp_path / "alone"), (
    tmp_path / "runs/clip-higher/seed0", out / "runs/clip-higher/seed0",
  ):  # fmt: skip
    assert numbers(workdir) == numbers(same)


def numbers(workdir: Path) -> list[dict]:
  """The records without the clock, memory, and the cold start, which only one run of a cache has."""
  own = ("wall", "time/", "tokens_per_second", "memory/")
  records = [record for record in metrics.read(workdir) if record["kind"] != "cold_start"]
  return [{k: v for k, v in record.items() if not k.startswith(own)} for record in records]


@pytest.mark.slow
def test_a_killed_study_resumes_to_the_same_bytes(undisturbed, own_cache, tmp_path):
  """SIGKILL in the first run and SIGTERM in the second one; the run that was killed with it is resumed."""
  want, _, _ = undisturbed
  for row, how in ("overlong-filtering", signal.SIGKILL), ("clip-higher", signal.SIGTERM):
    workdir = tmp_path / "runs" / row / "seed0"
    env = subprocesses.environment()
    words = [sys.executable, "-m", *command(own_cache, tmp_path)]
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)
    wait_for(lambda d=workdir: sum(r["kind"] == "train" for r in metrics.read(d)) >= 2, process)
    process.send_signal(how)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == (-signal.SIGKILL if how is signal.SIGKILL else os.EX_TEMPFAIL), said
    wait_for(lambda d=workdir: not alive(d), None)
    assert not (tmp_path / "results.json").exists()
  last = subprocesses.run_one(*command(own_cache, tmp_path))
  assert last.code == 0, last.err
  texts = [
    (folder / "results.json").read_text().replace(str(folder), "OUT") for folder in (want, tmp_path)
  ]
  assert texts[0] == texts[1]
  rows = json.loads(texts[0])["rows"]
  assert [row["name"] for row in rows] == ["+ overlong filtering", "+ clip-higher"]


def wait_for(true, process, seconds: float = 120.0) -> None:
  end = time.monotonic() + seconds
  while not true():
    assert time.monotonic() < end and (process is None or process.poll() is None)
    time.sleep(0.02)


def alive(workdir: Path) -> bool:
  """Whether some process prints into that workdir's log."""
  for path in Path("/proc").glob("[0-9]*/fd/1"):
    try:
      if path.readlink() == workdir / "log.txt":
        return True
    except OSError:  # it has ended
      continue
  return False


@pytest.mark.slow
def test_a_run_that_fails_is_said_and_the_others_are_shown(own_cache, tmp_path):
  """The first row finds a file where its checkpoints go."""
  broken = tmp_path / "runs" / "overlong-filtering" / "seed0" / "checkpoints"
  broken.parent.mkdir(parents=True)
  broken.write_text("in the way")
  done = subprocesses.run_one(*command(own_cache, tmp_path))
  assert done.code == 1 and "1 of 2 runs failed" in done.err
  found = json.loads((tmp_path / "results.json").read_text())
  assert [row["name"] for row in found["rows"]] == ["+ clip-higher"]
  assert found["missing"] == ["+ overlong filtering, seed 0"] and "see " in done.out


# In a browser.


@pytest.mark.skipif(not BROWSER, reason="needs chromium")
def test_the_report_opens_in_a_browser_with_its_table_and_figures(tmp_path):
  for run in runs(tmp_path):
    finish(run)
  found = results.collect(STUDY, runs(tmp_path), "python -m toy")
  path = page.write(tmp_path, STUDY, found, figures.draw(STUDY, found, tmp_path), runs(tmp_path)[0])
  dom = browse("--dump-dom", path, tmp_path)
  assert dom.count("<svg") == 6 and dom.count("<figure ") == 6 and dom.count("<tr>") == 4
  for text in ("python -m toy", "+10.0 [+10.0, +10.0]", "95 % bootstrap interval"):
    assert text in dom
  picture = tmp_path / "page.png"
  browse(f"--screenshot={picture}", path, tmp_path)
  assert picture.stat().st_size > 20_000  # not an empty page


def browse(action: str, path: Path, home: Path) -> str:
  command = [
    BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={home}/browser",
    "--window-size=1100,2400", action, path.as_uri(),
  ]  # fmt: skip
  return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
