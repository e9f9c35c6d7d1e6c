"""A recipe of configs/ with verifiers that fail, and with checkpoints and evaluations that come often.

    python -m grpojax.main --config=benchmarks/endurance/recipe.py:dapo
"""

import importlib

from ml_collections import ConfigDict

from benchmarks.endurance import verifier


def get_config(arg: str = "dapo") -> ConfigDict:
  c = importlib.import_module(f"grpojax.recipes.{arg}").get_config()
  c.verbose = False
  c.checkpoint.update(every=2, keep=3)
  c.eval.update(every=4, prompts=32)
  for name in (*verifier.SHARES, "seen"):
    c.reward[name] = dict(fn=f"{verifier.__name__}:{name}", weight=0.0)
  return c
