"""The two studies that train: recipes on five tasks, and settings of one recipe on the first task."""

from experiments.mismatch import CORRECTIONS, GAP, INT8
from experiments.real_model import tasks
from grpojax.recipes import smollm2
from grpojax.tools.study import Figure, Row, Study

RECIPES = ("grpo", "dapo", "gspo", "rloo")
COMMON = dict(
  seeds=3,
  minutes=18.0,  # README.md, 24 November 2026
  machine="two CPU cores",
  scatter=4.0,  # the five studies of docs/results have 0.9 to 3.4, with two to four times the questions
)
ANSWERED = {"rewards/answered / rewards/graded": ""}
CURVES = (
  Figure("Held-out accuracy", "% of questions", {"eval/pass@1": ""}),
  Figure("Answers found", "% of completions", ANSWERED, note="Of the completions that were trained on."),
  Figure("Truncated completions", "% of completions", {"eval/clipped_ratio": ""}),
  Figure("Completion length", "tokens", {"completions/mean_length": ""}),
  Figure("Entropy", "nats per token", {"entropy": ""}),
)


def recipes() -> Study:
  """Returns GRPO, DAPO, GSPO and RLOO on every task; rows are compared within a task."""
  labels = {task: tuple(f"{task}: {recipe}" for recipe in RECIPES) for task in tasks.TASKS}
  return Study(
    name="real_model-recipes",
    title="Four recipes on five tasks, SmolLM2-135M-Instruct",
    question="Each row is configs/smollm2.py with another recipe and task; the tasks go from easy to hard.",
    rows=tuple(
      Row(recipe, f"configs/smollm2.py:{recipe}", tasks.changes(task), group=task)
      for task in tasks.TASKS
      for recipe in RECIPES
    ),
    figures=(
      Figure("Against GRPO, at equal tokens", "points", {"over_first_at_equal_tokens": ""}, over="rows"),
      Figure("Against GRPO, after equal steps", "points", {"over_first": ""}, over="rows"),
      *(
        Figure(f"Answers found: {task}", "% of completions", ANSWERED, rows, over="tokens")
        for task, rows in labels.items()
      ),
    ),
    **COMMON,
  )


def settings() -> Study:
  """Returns the first task with adapters, in lower precision with corrections, and with a reward of form."""
  c, on = smollm2.get_config(), tasks.changes(next(iter(tasks.TASKS)))
  row = lambda name, changes: Row(name, "configs/smollm2.py", on | changes)
  adapters = {"lora.rank": 8, "optimizer.learning_rate": 10 * c.optimizer.learning_rate}
  form = dict(fn="experiments.real_model.control:stated_in_time", form=c.reward.accuracy.form)
  bfloat16 = {"model.dtype": "bfloat16"}
  corrected = lambda how: {"objective.correct": CORRECTIONS[how]} if CORRECTIONS[how] else {}
  return Study(
    name="real_model-settings",
    title="Adapters, precision, and a reward of form alone, SmolLM2-135M-Instruct",
    question="GRPO without KL on sums. In bfloat16 learner and sampler compute, by different programs; in "
    "int8 are the sampler's weights and caches. The control is paid for answers in time, right or wrong.",
    rows=(
      row("all parameters, float32", {}),
      row("adapters, 10 x the learning rate", adapters),
      *(row(f"bfloat16, {how}", bfloat16 | corrected(how)) for how in ("none", "TIS")),
      *(row(f"int8, {how}", INT8 | corrected(how)) for how in CORRECTIONS),
      row("form alone", {"reward.accuracy.weight": 0.0, "reward.form": form}),
    ),
    figures=(
      Figure("Against all parameters in float32", "points", {"over_first": ""}, over="rows"),
      Figure("Sampler against learner", "mean |difference of log-probs|, nats", GAP),
      Figure("Effective sample size", "% of tokens", {"sampling/effective_sample_size": ""}),
      *CURVES,
    ),
    **COMMON,
  )


STUDIES = {"recipes": recipes, "settings": settings}
