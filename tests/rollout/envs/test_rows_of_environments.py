"""Datasets of tasks: each question is what the pool's reset says, and each game can be played again."""

import contextlib
import json

import pytest
from ml_collections import ConfigDict

from grpojax.data import pipeline, text
from grpojax.rollout.envs import build, planned
from grpojax.rollout.envs.interface import Turn
from grpojax.rollout.envs.pool import Pool

COMMON = ("task", "prompt_budget", "overlong_prompts")


def prepare(folder, environment: str, knobs: dict, **more):
  config = ConfigDict(dict(task="grpojax.rollout.envs.rows:Tasks", environment=environment, knobs=knobs))
  config.update(dict(train=20, validation=3, test=4, prompt_budget=128, overlong_prompts="error") | more)
  path = pipeline.prepare(config, folder, COMMON)
  read = lambda split: pipeline.load_split(config, path, split, text.load_tokenizer(), needs=lambda _: ())
  return {split: read(split).records for split in ("train", "validation", "test")}


@pytest.fixture(scope="module")
def lakes(tmp_path_factory):
  return prepare(tmp_path_factory.mktemp("lakes"), "frozen_lake", {"size": 4}, wrong=0.3)


def test_no_question_is_in_two_splits(lakes):
  questions = [row["question"] for rows in lakes.values() for row in rows]
  assert [len(rows) for rows in lakes.values()] == [20, 3, 4] and len(set(questions)) == 27
  assert len({row["number"] for rows in lakes.values() for row in rows}) == 27


def test_a_row_is_what_the_pool_answers_to_its_reset(lakes):
  """Rows go to the environment as they are read, the seed of the episode being any."""
  pool = Pool("frozen_lake", {"size": 4})
  with contextlib.closing(pool):
    for row in lakes["train"][:5]:
      pool.reset(0, row, 99)
      assert pool.wait(60) == [(0, Turn(row["question"], anchor=row["question"]))]


def test_a_game_is_played_again_by_its_actions(lakes):
  wins = 0
  for row in lakes["train"]:
    environment = build.find("frozen_lake")(size=4)
    environment.reset(row, 0)
    *before, last = json.loads(row["episode"])
    for action, observation in before:
      turn = environment.step(action)
      assert turn.text == observation and not turn.ended
    turn = environment.step(last[0])
    assert turn.ended and last[1] == ""
    wins += turn.reward
  assert 5 <= wins < 20  # the planner errs


def test_planners_of_all_environments_and_those_without_one():
  for name in ("frozen_lake", "sokoban", "desk"):
    first, again = planned.play(name, {}, [5, 6], 0.0), planned.play(name, {}, [6], 0.0)
    assert first[1] == again[0] and first[0] != first[1]
    assert len(first[0][1]) > 1 and first[0][1][-1][1] == ""
  assert planned.play("cliff_walking", {}, [5], 0.5)[0][1] is None


@pytest.mark.slow
def test_an_environment_with_one_task_has_it_in_every_row(tmp_path):
  rows = prepare(tmp_path, "cliff_walking", {}, train=3)
  assert len({row["question"] for split in rows.values() for row in split}) == 1
  assert len(rows["train"]) == 3 and rows["train"][0]["episode"] == ""


@pytest.mark.parametrize("more, words", [
  (dict(knobs={"size": 2}), "frozen_lake has only 3 different ones"), (dict(wrong=1.5), "wrong = 1.5"),
  (dict(train=0), "train = 0 rows"), (dict(environment="frozen_lakes"), "cannot be played"),
])  # fmt: skip
def test_what_gives_no_rows_is_refused(tmp_path, more, words):
  with pytest.raises(ValueError, match=words):
    prepare(tmp_path, **dict(environment="frozen_lake", knobs={}) | more)
