"""Names of environments, their knobs, the task of one turn, and that none of this needs jax."""

import subprocess
import sys
from pathlib import Path

import pytest
import toy_environments

from grpojax.rollout import envs
from grpojax.rollout.envs import build
from grpojax.rollout.envs.frozen_lake import FrozenLake
from grpojax.rollout.envs.interface import Turn
from grpojax.rollout.envs.single_turn import SingleTurn

FOLDER = Path(envs.__file__).parent


def test_names_of_the_package_and_of_ones_own():
  assert {"frozen_lake", "taxi", "cliff_walking", "sokoban", "desk", "tools", "single_turn"} <= set(
    build.names()
  )
  assert build.find("frozen_lake") is FrozenLake
  assert build.find("toy_environments:Dice") is toy_environments.Dice


@pytest.mark.parametrize("name, words", [
  ("", "none of cliff_walking"), ("frozen_lakes", "none of cliff_walking"), (":x", "none of"),
  (None, "none of"),
  ("no_such_module:Environment", "there is no module no_such_module"),
  ("toy_environments:Cards", "toy_environments has no class or function Cards"),
])  # fmt: skip
def test_a_name_that_says_none_is_refused(name, words):
  with pytest.raises(ValueError, match=words):
    build.find(name)


def needs_one(*, size: int):
  return size


def test_knobs_and_the_time_limit_are_checked():
  build.check("frozen_lake", dict(size=4), 1.0)
  with pytest.raises(
    ValueError, match="'frozen_lake' has no width; it takes size, frozen, slippery, max_steps, rules"
  ):
    build.check("frozen_lake", dict(width=4), 1.0)
  with pytest.raises(ValueError, match="size"):
    build.check(f"{__name__}:needs_one", {}, 1.0)
  for seconds in (0, -1.0, float("nan")):
    with pytest.raises(ValueError, match="time limit"):
      build.check("frozen_lake", {}, seconds)


def test_a_task_of_one_turn_is_an_environment_with_one_step():
  example = {"question": "7+5=?", "answer": "12"}
  for answer, reward in (("7+5=12\n#12", 1.0), ("#13", 0.0), ("", 0.0)):
    task = SingleTurn()
    assert task.reset(example, 0) == Turn("7+5=?")
    assert task.step(answer) == Turn("", reward=reward, done=True)


def group(group, accuracy):
  return accuracy


def length(sample):
  return sample.length / 2


def test_rewards_that_see_more_than_a_text_are_refused_or_fail():
  accuracy = {"fn": "rules:integer_answer", "marker": "#"}
  with pytest.raises(ValueError, match="sees a whole group"):
    SingleTurn({"accuracy": accuracy, "rank": {"fn": f"{__name__}:group"}})
  task = SingleTurn({"accuracy": accuracy, "short": {"fn": f"{__name__}:length"}})
  task.reset({"question": "7+5=?", "answer": "12"}, 0)
  with pytest.raises(ValueError, match="Reward 'short' raised TypeError"):
    task.step("#12")


IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
  importlib.import_module(f"grpojax.rollout.envs.{name}")
print([name for name in ("jax", "jaxlib", "flax", "tensorflow", "transformers") if name in sys.modules])
"""


def test_no_environment_needs_jax():
  libraries = ("textarena", "openenv", "rows")  # which import what they like; rows.py is the trainer's
  names = [path.stem for path in FOLDER.glob("*.py") if path.stem not in ("__init__", *libraries)]
  assert len(names) > 10
  command = [sys.executable, "-c", IMPORT_ALL, *names]
  assert (
    subprocess.run(command, capture_output=True, text=True, check=True, cwd=FOLDER.parents[2]).stdout
    == "[]\n"
  )
