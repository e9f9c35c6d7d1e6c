"""Does distilling beat RL on the small model?  And on-policy or off-policy?

    python -m experiments.distillation --dry_run      # the plan
    python -m experiments.distillation                # 4 rows x 5 seeds on 2 CPU cores: 12 minutes
    python -m experiments.distillation --scale=tiny --rows=1,3

R1's claim, https://arxiv.org/abs/2501.12948 section 4.1.  The student is the same small model in all rows,
and the teacher the same large one after RL.  Rows are compared at equal tokens of the student, sampled or
learned, and at equal tokens of all, in which the teacher's are.
"""

from ml_collections import ConfigDict

from experiments import stages
from grpojax.recipes import grpo
from grpojax.recipes.pipelines import distill, on_policy_distill
from grpojax.tools.study import Figure, Row, Study, chains

TEACHER = dict(name="teacher", kind="rl", init="base")
ROWS = {
  "rl": ("RL on the small model", [dict(name="rl", kind="rl", init="student")]),
  "sft": (
    "SFT of the teacher's answers",
    [
      TEACHER,
      dict(name="answers", kind="sample", init="teacher"),
      dict(name="sft", kind="sft", init="student", samples="answers"),
    ],
  ),
  "tokens": (
    "on-policy by tokens",
    [TEACHER, dict(name="tokens", kind="distill", init="student", teacher="teacher")],
  ),
  "vocabulary": (
    "on-policy by vocabulary",
    [TEACHER, dict(name="vocabulary", kind="distill", init="student", **on_policy_distill.GKD)],
  ),
}


def get_config(arg: str = "mini-rl") -> ConfigDict:
  """Returns the pipeline of "SCALE-WHICH"."""
  scale, _, which = arg.partition("-")
  c = grpo.get_config(scale)
  c.name = f"distillation_{which}"
  stages.ask_all(c, scale)
  made = stages.measured([distill.student(c), *ROWS[which][1]], start="student")
  c.stages = [stage for stage in made if stage.name != f"{TEACHER['name']}_done"]
  return c


def study(scale: str) -> Study:
  return Study(
    name=f"distillation-{scale}",
    title=f"Distilling, or RL on the small model ({scale})",
    question="Rows are compared with RL on the student.",
    rows=tuple(
      Row(name, f"experiments/distillation.py:{scale}-{which}") for which, (name, _) in ROWS.items()
    ),
    figures=(Figure("Accuracy by tokens", "% of questions", {"eval/pass@1": ""}, over="tokens"),),
    spends={"tokens of all": "num_tokens", "tokens of the student": chains.OWN},
  )


if __name__ == "__main__":
  from grpojax.tools.study import command

  command.run("experiments.distillation", study, ("mini", "tiny"))
