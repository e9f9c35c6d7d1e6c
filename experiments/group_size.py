"""Many prompts or many completions of each?  GRPO's group size, at equal responses or prompts a step.

    python -m experiments.group_size              # 12 rows x 5 seeds on 2 CPU cores
    python -m experiments.group_size --scale=tiny # seconds; for tests

Updates are not packed here: a microbatch then has prompts of its own, and tells the gradient's noise.
"""

from experiments.common import MINI
from grpojax.recipes.sweeps import group_size
from grpojax.tools.study import Figure, Row, Study

CONFIG = "configs/base.py"
RESPONSES, PROMPTS = {"mini": 256, "tiny": 128}, {"mini": 16, "tiny": 4}

FIGURES = (
  Figure("Held-out accuracy along G", "% of questions", {"eval/pass@1": ""}, over="swept"),
  Figure(
    "Noise of the gradient along G", "% of its squared norm", {"grad_noise": ""}, over="swept",
    note="Share of the squared gradient norm that another draw of prompts and completions would not repeat.",
  ),
  Figure("Mixed groups along G", "% of groups", {"prompts/mixed": ""}, over="swept"),
  Figure("Entropy along G", "nats per token", {"entropy": ""}, over="swept"),
)  # fmt: skip


def rows(scale: str) -> tuple[Row, ...]:
  """Returns the rows of both ways of paying for a larger group."""
  responses, prompts = RESPONSES[scale], PROMPTS[scale]
  return (
    *(of(scale, f"{responses} responses", changes) for changes in group_size.get_sweep(str(responses))),
    *(
      of(scale, f"{prompts} prompts", changes | {"rollout.prompts": prompts})
      for changes in group_size.get_sweep()
    ),
  )


def of(scale: str, group: str, changes: dict) -> Row:
  """Returns a row with a microbatch for each prompt of an update, of which a rollout has two."""
  size, prompts = changes["rollout.group_size"], changes["rollout.prompts"]
  common = {"rows": "single", "microbatches": prompts // 2, "rollout.slots": min(64, prompts * size)}
  common |= MINI | {"steps": 30} if scale == "mini" else {}
  return Row(f"G = {size}", f"{CONFIG}:{scale}", common | changes, group=group, at=size)


def study(scale: str) -> Study:
  return Study(
    name=f"group_size-{scale}",
    title=f"The group size ({scale})",
    question=f"GRPO without KL, with {RESPONSES[scale]} responses a step, and with {PROMPTS[scale]} prompts.",
    rows=rows(scale),
    figures=FIGURES,
    swept="G, completions of a prompt",
    minutes={"mini": 1.2}.get(scale, 0.0),
    machine="one CPU core",
  )


if __name__ == "__main__":
  from grpojax.tools.study import command

  command.run("experiments.group_size", study, ("mini", "tiny"))
