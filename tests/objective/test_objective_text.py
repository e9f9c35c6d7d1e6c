"""The objective as a formula, for a report's head."""

import importlib

import pytest

from grpojax.config.recipe import names
from grpojax.objective import text


def of(recipe):
  return text.formula(importlib.import_module(f"grpojax.recipes.{recipe}").get_config().objective.to_dict())


def test_grpo_has_its_penalty_and_dapo_has_none():
  assert of("grpo")[0] == "loss(θ) = Σ w · (0.04 · kl_k3 − ppo_clip[high 0.2, low 0.2](ℓ, A))"
  assert of("dapo")[0] == "loss(θ) = Σ w · (− ppo_clip[high 0.28, low 0.2](ℓ, A))"
  assert of("grpo")[1].startswith("A: zscore[ddof 1, eps 1e-06] = (R − mean) / (std + eps).")


@pytest.mark.parametrize("recipe", names())
def test_every_function_of_a_recipe_is_named(recipe):
  objective = importlib.import_module(f"grpojax.recipes.{recipe}").get_config().objective.to_dict()
  said = "\n".join(of(recipe))
  single = [slot for slot in objective.values() if "fn" in slot]
  listed = [one for slot in objective.values() if "fn" not in slot for one in slot.values()]
  assert all(one["fn"] in said for one in (*single, *listed) if one["fn"] != "identity")


def test_a_function_of_ones_own_is_named_and_not_explained():
  objective = importlib.import_module("configs.grpo").get_config().objective.to_dict()
  objective["surrogate"] = {"fn": "my.module:my_gain", "width": 0.5}
  assert "my.module:my_gain[width 0.5](ℓ, A)" in text.formula(objective)[0]
