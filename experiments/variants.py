"""Which variant learns most from the same tokens?  Every recipe of single turns, head to head.

    python -m experiments.variants --dry_run        # the plan, and what it can detect
    python -m experiments.variants                  # 28 rows x 5 seeds on 2 CPU cores: an hour, by arithmetic
    python -m experiments.variants --rows=grpo,maxrl,dppo,vespo,m2po,opo,gdpo,topr,scale_rl,prime,hgpo
    python -m experiments.variants --scale=tiny     # seconds; for tests

Learning rate, batch and model are the same for all: a recipe that wants others is at a disadvantage.  Of
hgpo, whose turns are completions here, only its normalisation is left.
"""

from experiments.common import MINI
from grpojax.tools.study import Figure, Row, Study

RECIPES = (
  "grpo", "dr_grpo", "dapo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "lite_ppo", "gspo",
  "gspo_token", "gmpo", "cispo", "sapo", "luspo", "gtpo", "grpo_s", "math_single_turn", "long_cot",
  "short_rlhf",
  "maxrl", "dppo", "vespo", "m2po", "opo", "gdpo", "topr", "scale_rl", "prime", "hgpo",
)  # fmt: skip

FIGURES = (
  Figure("Against GRPO, at equal tokens", "points", {"over_first_at_equal_tokens": ""}, over="rows"),
  Figure("Against GRPO, after equal steps", "points", {"over_first": ""}, over="rows"),
  Figure("Accuracy by tokens", "% of questions", {"eval/pass@1": ""}, over="tokens"),
  Figure("Accuracy by steps", "% of questions", {"eval/pass@1": ""}),
  Figure("Entropy", "nats per token", {"entropy": ""}),
  Figure("Completion length", "tokens", {"completions/mean_length": ""}),
)


def study(scale: str) -> Study:
  common = MINI if scale == "mini" else {}
  return Study(
    name=f"variants-{scale}",
    title=f"All variants on equal tokens ({scale})",
    question="Each row is a file of configs/, unchanged; the column of equal tokens is the comparison.",
    rows=tuple(Row(name, f"configs/{name}.py:{scale}", common) for name in RECIPES),
    figures=FIGURES,
    scatter=0.0 if scale == "tiny" else 0.8,  # docs/results/variants: 0.2 to 1.1 of single rows, 5 seeds
  )


if __name__ == "__main__":
  from grpojax.tools.study import command

  command.run("experiments.variants", study, ("mini", "tiny"))
