"""The scales that play: any recipe takes them, and the dataset has the tasks of what is played."""

import importlib

import pytest
from objective_toys import recipe

from grpojax.config import check, check_keys
from grpojax.config.commandline import config_of
from grpojax.recipes import games

PLAYS = {  # recipe -> what it plays where no scale is named
  "gigpo": "frozen_lake", "hgpo": "frozen_lake", "agent": "frozen_lake", "stack": "frozen_lake",
  "essa": "desk", "agent_high_entropy": "desk",
}  # fmt: skip


@pytest.mark.parametrize("scale", games.SCALES)
def test_a_game_is_legal_and_adds_no_key(scale):
  base = recipe("base", scale)
  for name in ("grpo", "dapo", *PLAYS):
    c = recipe(name, scale)
    if name == "dapo":
      assert "soft_overlong" in c.reward  # of completions: its recipe says so in a sentence
      with pytest.raises(ValueError, match=r"config\.reward\..* grades completions"):
        check.check(c, devices=1)
      continue
    check_keys.check(c)
    check.check(c, devices=1)
    assert set(c) == set(base) and set(c.data) == set(base.data) and set(c.env) == set(base.env)


@pytest.mark.parametrize("name", PLAYS)
def test_an_agents_recipe_plays(name):
  c = importlib.import_module(f"grpojax.recipes.{name}").get_config()
  assert c.env.name == c.data.environment == PLAYS[name] and not c.reward


def test_the_dataset_follows_what_is_played():
  c = config_of(["--config=gigpo", "--config.env.knobs.size=5", "--config.env.knobs.frozen=0.9"])
  assert c.data.knobs.to_dict() == c.env.knobs.to_dict() == dict(size=5, max_steps=12, frozen=0.9)


@pytest.mark.parametrize(
  "flags", [["--config.data.knobs={'size': 5}"], ["--config.env.knobs={'size': 5}"]], ids=str
)
def test_tasks_of_another_environment_are_refused(flags):
  with pytest.raises(ValueError, match="set both alike"):
    check.check(config_of(["--config=gigpo", *flags]), devices=1)
