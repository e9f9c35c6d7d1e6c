"""Five tasks of reasoning-gym, from easy to hard by what a solution takes, fixed before any model saw them.

All are answered by one number, so that one verifier and one form serve them all, and the longest prompt of
1,000 has 76 tokens.  The commonest answer is right in at most 12 of 100 questions: saying it is no skill.
"""

from typing import Any

TASKS: dict[str, dict[str, Any]] = {
  "sums": dict(task="reasoning_gym:chain_sum", knobs=dict(max_terms=2, max_digits=2)),  # one sum
  "products": dict(task="reasoning_gym:products", knobs=dict(max_terms=2, max_digits=2)),  # one product
  "equations": dict(  # two operations, undone
    task="reasoning_gym:simple_equations", knobs=dict(min_terms=2, max_terms=2, max_value=20)
  ),
  "legs": dict(  # two facts, two products, one sum
    task="reasoning_gym:leg_counting", knobs=dict(min_animals=2, max_animals=2, max_instances=5)
  ),
  "sequences": dict(  # a rule to be found
    task="reasoning_gym:number_sequence", knobs=dict(max_complexity=1)
  ),
}
PROMPT_BUDGET = 96  # tokens, chat template included
DRAWN = 200  # of a task's test questions, before repeats are left out


def suite(name: str) -> dict[str, Any]:
  """Returns the task's entry of config.data.test: questions that no run is trained on."""
  return TASKS[name] | dict(rows=DRAWN)


def changes(name: str) -> dict[str, Any]:
  """Returns what a run on this task changes in configs/smollm2.py."""
  return {
    "data.task": TASKS[name]["task"],
    "data.knobs": TASKS[name]["knobs"],
    "data.test": {name: suite(name)},
    "data.prompt_budget": PROMPT_BUDGET,
  }
