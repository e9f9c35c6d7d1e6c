"""grpojax.run: the command's own run by a call, with functions, rows and models in memory."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
import subprocesses
import upload_hub
from huggingface_hub import constants

import grpojax
from grpojax import train
from grpojax.config import commandline
from grpojax.models import hf
from grpojax.recipes import grpo
from grpojax.tools import export

pytestmark = pytest.mark.usefixtures("quick_jobs")
QUIET = {"verbose": False, "mesh": {"data": 1}}
ROWS = [{"question": f"{a}+{b}=?", "answer": str(a + b), "level": a} for a in range(8) for b in range(8)]


def shouts(completion, answer, level, prompt, tags=()):
  """1 where the answer stands anywhere; of one completion, with all that its row has."""
  assert level == int(prompt[0]) and tags == ()
  return float(answer in completion)


@pytest.fixture(scope="module")
def trained(cache, tmp_path_factory):
  """A run of two steps on the embedded task, by relative paths; the rewards that its callback saw."""
  seen, folder = {}, tmp_path_factory.mktemp("library")
  (folder / "cache").symlink_to(cache)
  with pytest.MonkeyPatch.context() as patch:
    patch.chdir(folder)
    done = grpojax.run(
      "grpo:tiny", workdir="run", callback=lambda step, found: seen.update({step: found["reward"]}),
      cache_dir="cache", **QUIET,
    )  # fmt: skip
  assert done.workdir == folder / "run"
  return done, seen


def test_a_call_is_the_command(trained):
  done, seen = trained
  flags = [f"--config.{flag}" for flag in ("cache_dir=cache", "verbose=False", "mesh.data=1")]
  assert done.job.config.to_dict() == commandline.config_of(["--config=grpo:tiny", *flags]).to_dict()
  assert done.finished and list(seen) == [1, 2] == done.metrics.index.tolist()
  assert seen[2] == done.metrics["reward"][2] and (done.workdir / "checkpoints" / "2").is_dir()


def test_the_policy_is_sampled_greedily_as_the_evaluation_does(trained):
  """Of many prompts, more than a batch has, each has what it has alone; heat and seed change them."""
  done, _ = trained
  prompts = [record["question"] for record in done.job.data.held_out.records[:6]]
  greedy = done.generate(prompts, temperature=0)
  assert len(greedy) == 6 and all(isinstance(one, str) for one in greedy)
  assert [done.generate([prompt], temperature=0)[0] for prompt in prompts[-2:]] == greedy[-2:]
  assert done.generate(prompts, seed=1) != done.generate(prompts, seed=2)
  assert done.generate(prompts, seed=1) == done.generate(prompts, seed=1)
  with pytest.raises(ValueError, match=r"reads config\.data\.prompt_budget = 32"):
    done.generate(["1+" * 40])
  with pytest.raises(ValueError, match="a list of prompts"):
    done.generate("1+1")


@pytest.mark.slow
def test_two_at_once_in_threads_have_the_numbers_of_each_alone(cache, tmp_path):
  def numbers(name, seed):
    done = grpojax.run(
      "dapo:tiny", workdir=tmp_path / name, seed=seed, steps=2, cache_dir=str(cache), **QUIET
    )
    return [done.metrics[of].tolist() for of in ("reward", "loss", "grad_norm", "num_tokens")]

  with ThreadPoolExecutor(2) as threads:
    both = list(threads.map(numbers, ("one", "two"), (1, 2)))
  assert both == [numbers("one alone", 1), numbers("two alone", 2)] and both[0] != both[1]


@pytest.mark.slow
def test_a_run_goes_on_from_its_exported_model_on_rows_with_a_function(trained, cache, tmp_path, monkeypatch):
  """Twice in one process, relative paths, and the record says what was trained on and by what."""
  monkeypatch.chdir(tmp_path)
  (tmp_path / "cache").symlink_to(cache)
  done, _ = trained
  folder = done.export("exported", dtype="float32")
  small = dict(steps=2, rollout={"prompts": 4, "group_size": 4, "max_tokens": 16, "slots": 0}, microbatches=1)
  small |= dict(updates_per_rollout=1, eval={"prompts": 8, "samples": 2}, logprob_chunk=16)
  small |= {"data.prompt_budget": 32, "data.template": "none", "model.dtype": "float32"}

  def start(rows, **changes):
    own = QUIET | small | changes
    return grpojax.run(
      "gspo", model=folder, data=rows, reward=shouts, workdir="runs/mine", cache_dir="cache", **own
    )

  first = start(ROWS, steps=1)
  again = start(iter(ROWS))
  assert again.metrics.index.tolist() == [1, 2]
  assert first.workdir == tmp_path / "runs" / "mine"
  before, after = hf.load(folder, first.job.model, first.job.mesh), again.params
  moved = [float(np.abs(a - b).max()) for a, b in zip(leaves(before), leaves(after), strict=True)]
  assert 0 < max(moved) < 1e-2
  config = json.loads((first.workdir / "config.json").read_text())
  assert config["reward"]["accuracy"] == {"fn": f"{__name__}:shouts"}  # the recipe's knobs were another's
  assert config["data"]["path"].startswith(str(tmp_path / "cache" / "rows"))
  assert config["data"]["meta"] == "level,tags" and config["data"]["prompt"] == "question"
  assert again.metrics["rewards/accuracy/failed"].tolist() == [0, 0]
  with pytest.raises(ValueError, match=r"data\.path: .* -> .*"):
    start(ROWS[1:])
  with pytest.raises(ValueError, match=r"reward\.accuracy\.fn: .*shouts.* -> .*"):
    grpojax.run(
      "gspo", model=folder, data=ROWS, reward=lambda completion: 0.0, workdir="runs/mine", cache_dir="cache",
      **QUIET | small,
    )  # fmt: skip


def test_an_export_is_that_of_the_command_with_its_card(trained, tmp_path, monkeypatch):
  """File by file, but for the folder's name; and what is uploaded is the folder."""
  done, _ = trained
  with upload_hub.serve() as hub:
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", upload_hub.WRITER)
    ours = done.export(tmp_path / "ours", push="org/name")
  export.main([f"--workdir={done.workdir}", f"--out={tmp_path / 'theirs'}", "--push="])
  files = {file.name: file.read_bytes() for file in ours.iterdir()}
  theirs = {file.name: file.read_bytes() for file in (tmp_path / "theirs").iterdir()}
  assert hub.repos == {"org/name": {"private": True, "files": files}}
  card, other = files.pop("README.md").decode(), theirs.pop("README.md").decode()
  assert files == theirs
  assert card.replace(str(ours), str(tmp_path / "theirs")).replace("# name", "# theirs") == other
  assert "after 2 of 2 steps" in card and "Held-out questions" in card
  with pytest.raises(ValueError, match="exists already"):
    done.export(tmp_path / "ours")
  with pytest.raises(ValueError, match="must be one of bfloat16"):
    done.export(tmp_path / "other", dtype="int8")


def leaves(tree):
  return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def test_a_config_of_ones_own_is_taken_and_left_as_it_is(cache, tmp_path, monkeypatch):
  """Its references hold: T of the evaluation is that of the rollout until it is set."""
  config = grpo.get_config("tiny")
  monkeypatch.setattr(train, "run", lambda job, callback: False)
  made = grpojax.run(config, workdir=str(tmp_path), cache_dir=str(cache), rollout={"max_tokens": 20}, **QUIET)
  assert made.job.config.eval.max_tokens == 20 and config.rollout.max_tokens == 48 and not made.finished


@pytest.mark.parametrize(
  "arguments, sentence",
  [
    (dict(recipe="gpso"), "--config=gpso: there is no file"),
    (dict(rewards=shouts), r"config has no 'rewards'; did you mean config\.reward\?"),
    (dict(recipe="grpo:tiny", reward=lambda x: 0.0), "must have `completion` .one text. or `completions`"),
    (dict(data=[]), "data= is a path or a list of rows"),
    (dict(data=[{"prompt": object()}]), "JSON cannot write one of them"),
    (dict(data=ROWS), r"config\.model\.path is empty"),
    (dict(recipe="grpo:tiny", reward=lambda completion, level: 0.0, **QUIET), "takes `level`, and no row"),
    (dict(recipe="grpo:tiny", steps="many"), r"config\.steps = 'many' is str"),
  ],
)
def test_a_mistake_is_one_sentence(arguments, sentence, tmp_path):
  with pytest.raises(ValueError, match=sentence) as error:
    grpojax.run(**{"workdir": tmp_path / "run", "cache_dir": str(tmp_path)} | arguments)
  assert "\n" not in str(error.value)


@pytest.mark.parametrize(
  "reward, rows, columns",
  [
    (lambda completions, prompts, solution, **rest: 0, [{"prompt": "1", "solution": 1}], ("prompt", "", "*")),
    (lambda completion, question: 0, [{"prompt": "1", "question": "2"}], ("prompt", "", "question")),
    (lambda completion, answer: 0, [{"question": "1", "answer": "1", "id": 7}], ("question", "answer", "")),
    (lambda sample: 0, [{"question": "1", "answer": "1"}], ("question", "answer", "")),
    (lambda completion, solution, **rest: 0, "openai/gsm8k", ("prompt", "answer", "")),
    (lambda completion, solution: 0, "me/mine", ("prompt", "answer", "solution")),
    (lambda completion, solution, **rest: 0, "mine.parquet", ("prompt", "answer", "*")),
  ],
)
def test_the_columns_that_a_reward_takes_are_kept_of_the_file(reward, rows, columns, tmp_path, monkeypatch):
  """Of a public dataset its layout says what is kept."""
  seen = []
  monkeypatch.setattr(train, "prepare", lambda config, *_: seen.append(config) or 1 / 0)
  with pytest.raises(ZeroDivisionError):
    grpojax.run("grpo", model="m", data=rows, reward=reward, cache_dir=str(tmp_path))
  assert (seen[0].data.prompt, seen[0].data.answer, seen[0].data.meta) == columns


def test_importing_the_package_imports_no_jax():
  asked = "import sys, grpojax; assert not {'jax', 'numpy', 'ml_collections'} & set(sys.modules)"
  subprocess.run([sys.executable, "-c", asked], check=True, env=subprocesses.environment())
  assert callable(grpojax.run)
