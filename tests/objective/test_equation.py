"""The words for an objective are those of its functions, for every recipe."""

import importlib
import pkgutil

import pytest

import configs
from configs import base
from grpojax.objective import build, equation

RECIPES = [m.name for m in pkgutil.iter_modules(configs.__path__) if not m.ispkg]


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_function_of_a_recipe_is_named_with_its_formula(recipe):
  objective = importlib.import_module(f"configs.{recipe}").get_config().objective
  built, terms = build(objective), equation.terms(objective)
  lists = sum(len(getattr(built, slot)) for slot in ("shape", "select", "correct", "veto", "penalty"))
  assert len(terms) == 4 + lists + (objective.rescale.fn != "identity")
  assert all(term.function and term.formula for term in terms)


def test_the_loss_has_the_penalties_and_says_when_tokens_are_trusted_less():
  o = base.get_config().objective
  assert equation.loss(o) == "loss(θ) = Σ w · (− J(ℓ, A))"
  o.penalty = {"kl": {"fn": "kl_k3", "beta": 0.04}, "bonus": {"fn": "entropy_bonus", "beta": 1e-3}}
  o.veto = {"opsm": {"fn": "stale_failures", "delta": 0.1}}
  assert equation.loss(o) == "loss(θ) = Σ w · (0.001 · entropy_bonus + 0.04 · kl_k3 − c · J(ℓ, A))"


def test_knobs_are_those_of_the_config_and_else_the_functions_own():
  o = base.get_config().objective
  o.surrogate.high = 0.28
  by_slot = {term.slot: term for term in equation.terms(o)}
  assert by_slot["surrogate"][:3] == ("J", "surrogate", "ppo_clip low=0.2 high=0.28")
  assert by_slot["surrogate"].formula.startswith("min(r A, clip(r, 1 − low, 1 + high) A)")
  assert by_slot["aggregate"].function == "sequence_mean rows=nonempty"
