"""The objectives under study: the project's recipes, and recipes with one slot exchanged."""

import importlib

from ml_collections import ConfigDict

from grpojax import objective as lib
from grpojax.config import recipe as recipe_lib

RECIPES = [name for name in recipe_lib.variants() if name != "base"]
CORRECTIONS = dict(
  none={},
  sequence_is=dict(fn="sequence_truncated_is", high=1e8),  # not truncated: the exact ratio
  tis=dict(fn="truncated_is", high=2.0),
  sequence_tis=dict(fn="sequence_truncated_is", high=2.0),
  icepop=dict(fn="icepop", low=0.5, high=5.0),
  mis=dict(fn="masked_is", high=2.0),
  geometric_rejection=dict(fn="geometric_rejection", low=0.8, high=1.25),
  wtrs=dict(fn="worst_token", low=0.5),
)


def recipe(name: str, **slots) -> ConfigDict:
  """Returns config.objective of configs/<name>.py with other slots and without KL, since J has no KL."""
  o = importlib.import_module(f"grpojax.recipes.{name}").get_config().objective
  o.penalty = ConfigDict()
  for slot, knobs in slots.items():
    o[slot] = ConfigDict(knobs)
  return o


def build(name: str, **slots) -> lib.Objective:
  """Binds the objective of `recipe`."""
  return lib.build(recipe(name, **slots))


def corrected(name: str) -> lib.Objective:
  """Returns RLOO with a mismatch correction of CORRECTIONS."""
  knobs = CORRECTIONS[name]
  return build("rloo", correct={"it": knobs} if knobs else {})
