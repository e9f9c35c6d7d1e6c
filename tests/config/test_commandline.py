"""What people type: recipes by name and by file from any folder, single keys of slots, mistakes, --help."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import subprocesses

from grpojax import main
from grpojax.config import check_keys, overrides, recipe, schema
from grpojax.config.commandline import config_of
from grpojax.recipes import base, gspo

ROOT = Path(__file__).parents[2]
OWN = """
from grpojax.recipes import base

def get_config(scale="tiny"):
  c = base.get_config(scale)
  c.name = "mine"
  return c
"""
FORMS = {  # what is typed -> the name and the scale of the config
  "gspo:tiny": ("gspo", "tiny"),
  "--config=gspo": ("gspo", "mini"),
  "--config=gspo:tiny": ("gspo", "tiny"),
  "--config=configs/gspo.py": ("gspo", "mini"),
  "--config=my/file.py": ("mine", "tiny"),
}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
  """A current folder without the repository's folders, and with a recipe of one's own."""
  (tmp_path / "my").mkdir()
  (tmp_path / "my" / "file.py").write_text(OWN)
  monkeypatch.chdir(tmp_path)
  return tmp_path


@pytest.mark.parametrize("typed", FORMS)
def test_a_recipe_is_found_from_any_folder(elsewhere, typed):
  c = config_of([typed])
  assert (c.name, c.scale) == FORMS[typed] and c.is_locked


def test_a_file_that_is_there_comes_before_the_packages_own(elsewhere):
  (elsewhere / "configs").mkdir()
  (elsewhere / "configs" / "gspo.py").write_text(OWN)
  assert config_of(["--config=configs/gspo.py"]).name == "mine"
  assert config_of(["--config=gspo"]).name == "gspo"


@pytest.mark.parametrize(
  "typed, sentence",
  [
    (["--config=gpso"], "--config=gpso: there is no file gpso .* did you mean .*gspo"),
    (["--config=configs/dappo.py:tiny"], "no file configs/dappo.py .* did you mean .*dapo"),
    (["--config=gspo.py"], "no file gspo.py"),  # a file of one's own that is not there is not ours
    (["--config=my/gspo.py"], "no file my/gspo.py"),
    (["--config=zzzz"], "the recipes are agent, agent_high_entropy, base"),
    (["--config=."], "--config=. is a folder, and a recipe is a name or a file"),
    (["star:tiny"], "star is a recipe of `grpojax pipeline`; here are agent, "),
    (["epsilon_high"], "epsilon_high is a recipe of `grpojax sweep --sweep`"),
    (["gspo", "--wrkdir=x"], "there is no flag --wrkdir; did you mean --workdir"),
    (["gspo", "--zzz=x"], "there is no flag --zzz; the flags are --config, --coordinator_address"),
    (["--config=gspo:huge"], "Config scale 'huge' is unknown; choose one of mini, tiny"),
    (["gspo", "--config=dapo"], "gspo is a recipe and --config names one too"),
    (["--config=gspo", "--config.stpes=3"], r"config has no 'stpes'; did you mean config\.steps\?"),
    (["--config=gspo", "--config.group_size=3"], r"did you mean config\.rollout\.group_size\?"),
    (["--config=gspo", "--config.rolout.prompts=3"], r"did you mean config\.rollout\?"),
    (["--config=gspo", "--config.mesh.sampler.zzz=3"], "config.mesh.sampler has no 'zzz'; it takes expert"),
    (["--config=gspo", "--config.model.path=x"], "'mini' is the embedded task's; add ':local'"),
    (["--config=gspo:tiny", "--config.data.path=x"], "'tiny' is the embedded task's; add ':local'"),
    ([], "no recipe is named; write one as in `grpojax train gspo`"),
    (["--config=gspo", "--config.seed.x=3"], "config.seed.x: config.seed = 0 is a value and has no keys"),
  ],
)
def test_a_mistake_is_one_sentence_with_the_nearest(elsewhere, typed, sentence):
  with pytest.raises(ValueError, match=sentence) as error:
    config_of(typed)
  assert "\n" not in str(error.value)


def test_a_reward_or_another_entry_is_added_by_its_name_alone():
  added = ["reward.form.fn=shaping:r1_format", "reward.form.weight=0.5"]
  added += ["objective.penalty.kl.fn=kl_k3", "objective.penalty.kl.beta=1"]
  c = config_of(["--config=base", *(f"--config.{key}" for key in added)])
  assert c.reward.form.to_dict() == {"fn": "shaping:r1_format", "weight": 0.5} and "accuracy" in c.reward
  assert c.objective.penalty.kl.to_dict() == {"fn": "kl_k3", "beta": 1}


@pytest.mark.parametrize(
  "changes, slot, left",
  [
    (["objective.advantage.fn=center"], "objective.advantage", {"fn": "center"}),
    (["objective.advantage.fn=zscore"], "objective.advantage", {"fn": "zscore", "eps": 1e-6, "ddof": 1}),
    (["objective.surrogate.fn=ratio_band"], "objective.surrogate", {"fn": "ratio_band"}),  # 0.2 is no band
    (
      ["objective.surrogate.low=0.5", "objective.surrogate.fn=ratio_band"],
      "objective.surrogate", {"fn": "ratio_band", "low": 0.5},
    ),
    (["objective.penalty.kl.fn=kl_k2"], "objective.penalty.kl", {"fn": "kl_k2", "beta": 0.04}),
    (["reward.accuracy.fn=my.module:mine"], "reward.accuracy", {"fn": "my.module:mine"}),
    (
      ["objective.surrogate={'fn': 'dual_clip', 'low': 0.1}", "objective.surrogate.fn=ppo_clip"],
      "objective.surrogate", {"fn": "ppo_clip", "low": 0.1},
    ),
  ],
)  # fmt: skip
def test_another_function_begins_with_its_own_knobs(changes, slot, left):
  c = config_of(["--config=grpo", *(f"--config.{change}" for change in changes)])
  for name in slot.split("."):
    c = c[name]
  assert c.to_dict() == left


def test_by_keyword_it_is_as_by_flag_and_said():
  c = gspo.get_config()
  said = overrides.apply(c, {"objective.advantage.fn": "center", "reward.form.fn": "shaping:r1_format"})
  assert said == ["config.objective.advantage.fn = 'center' leaves out the recipe's ddof, eps of zscore"]
  by_flag = ["--config.objective.advantage.fn=center", "--config.reward.form.fn=shaping:r1_format"]
  assert c.to_dict() == config_of(["--config=gspo", *by_flag]).to_dict()
  overrides.apply(c, {"steps": "seven"})
  with pytest.raises(ValueError, match=r"config\.steps = 'seven' is str"):
    check_keys.check(c)


def test_another_reward_is_asked_on_the_same_rows():
  c = gspo.get_config()
  c.reward.accuracy.only = {"task": "sum"}
  overrides.apply(c, {"reward.accuracy.fn": "my.module:mine"})
  assert c.reward.accuracy.to_dict() == {"fn": "my.module:mine", "only": {"task": "sum"}}


def test_help_has_every_recipe_and_every_key_within_a_terminal(monkeypatch, capsys):
  monkeypatch.setenv("COLUMNS", "80")
  monkeypatch.setattr(sys, "argv", ["grpojax train", "--help"])
  main.command()
  said = capsys.readouterr().out
  assert max(map(len, said.splitlines()[10:])) <= 80
  shown = {line.split()[0] for line in said.splitlines() if line.startswith("  ")}
  assert {*recipe.names(), "--workdir", "tiny"} <= shown
  keys = {word.partition("=")[0] for word in shown}
  assert {key for key in schema.flatten(base.get_config().to_dict())} - {"scale"} <= keys
  whole = " ".join(said.split())  # a comment of several lines is one sentence
  assert "rollout.prompts=32 P, prompts of one rollout" in whole and "sequences share rows" in whole


@pytest.mark.slow
def test_a_wheel_has_the_recipes_and_no_other_package(elsewhere):
  """Built from a copy, as the build leaves folders, and unpacked, as an installation does."""
  tree, site = elsewhere / "tree", elsewhere / "site"
  left_out = shutil.ignore_patterns(".git", "docs", "tests", "*.egg-info", "build", "__pycache__", "runs")
  shutil.copytree(ROOT, tree, symlinks=True, ignore=left_out)
  build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
  subprocess.run([sys.executable, "-c", build, elsewhere], cwd=tree, check=True, capture_output=True)
  (wheel,) = elsewhere.glob("*.whl")
  zipfile.ZipFile(wheel).extractall(site)
  assert {path.name for path in site.iterdir() if not path.suffix} == {"grpojax"}
  asked = f"""
import grpojax
from grpojax.config.commandline import config_of
assert grpojax.__file__.startswith({str(site)!r}), grpojax.__file__
for typed, wanted in {FORMS}.items():
  c = config_of([typed])
  assert (c.name, c.scale) == wanted, typed
"""
  env = subprocesses.environment() | {"PYTHONPATH": str(site)}
  done = subprocess.run([sys.executable, "-c", asked], cwd=elsewhere, env=env, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
