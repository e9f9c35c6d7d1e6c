"""A recipe of configs/ with verifiers that fail, and with checkpoints and evaluations that come often.

    python -m grpojax.main --config=benchmarks/endurance/recipe.py:dapo
    python -m grpojax.main --config=benchmarks/endurance/recipe.py:gigpo:tiny_lake     # a scale of its own

An environment brings its own rewards, and there are no verifiers.
"""

import importlib

from ml_collections import ConfigDict

from benchmarks.endurance import verifier


def get_config(arg: str = "dapo") -> ConfigDict:
  name, _, scale = arg.partition(":")
  c = importlib.import_module(f"grpojax.recipes.{name}").get_config(*filter(None, [scale]))
  c.verbose = False
  c.checkpoint.update(every=2, keep=3)
  c.eval.update(every=4, prompts=32)
  if c.env.name:
    return c
  for name in (*verifier.SHARES, "seen"):
    c.reward[name] = dict(fn=f"{verifier.__name__}:{name}", weight=0.0)
  return c
