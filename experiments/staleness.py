"""How old may the policy be that sampled?  k steps of staleness, and what corrects for it.

    python -m experiments.staleness --dry_run        # the plan, and what it can detect
    python -m experiments.staleness                  # 12 rows x 8 seeds on 2 CPU cores
    python -m experiments.staleness --scale=tiny     # seconds a run; for tests

A step has two updates, so that completions are 2 k to 2 k + 1 updates old.  "uncorrected" takes them for the
policy's own (REINFORCE with the group's advantages); "clipped" weighs them by the ratio to the policy that
sampled, in GRPO's clip range; "M2PO" (https://arxiv.org/abs/2510.01161) masks the tokens that make the
ratio's second moment too large, and clips nothing.  At k = 0 they differ in a step's second update alone.
"""

from experiments.common import MINI
from grpojax.tools.study import Figure, Row, Study

COMMON = MINI | {"eval.samples": 2, "eval.every": 5}
STALENESS = (0, 1, 4, 8)
CORRECTIONS = {
  "clipped": ("configs/base.py", {}),
  "uncorrected": ("configs/base.py", {"objective.surrogate": {"fn": "reinforce"}}),
  "M2PO": ("configs/m2po.py", {}),
}


def rows(scale: str) -> tuple[Row, ...]:
  """Returns every correction at every k."""
  common = COMMON if scale == "mini" else {}
  return tuple(
    Row(f"k = {k}, {name}", f"{config}:{scale}", common | changes | {"staleness": k}, group=name, at=float(k))
    for name, (config, changes) in CORRECTIONS.items()
    for k in STALENESS
  )


def figures() -> tuple[Figure, ...]:
  """Returns the accuracy along k, and the curves of every correction."""
  found = [Figure("Held-out accuracy by k", "% of questions", {"eval/pass@1": ""}, over="swept")]
  for name in CORRECTIONS:
    mine = tuple(row.name for row in rows("mini") if row.group == name)
    found += [
      Figure(f"Held-out accuracy: {name}", "% of questions", {"eval/pass@1": ""}, mine),
      Figure(f"Entropy: {name}", "nats per token", {"entropy": ""}, mine),
      Figure(f"Gradient norm: {name}", "global, before clipping", {"grad_norm": ""}, mine),
    ]
  return tuple(found)


def study(scale: str) -> Study:
  return Study(
    name=f"staleness-{scale}",
    title=f"How old may the policy be that sampled? ({scale})",
    question="GRPO without KL; rows are compared with k = 0 of the same correction.",
    rows=rows(scale),
    figures=figures(),
    seeds=8,
    last=4 if scale == "mini" else 1,
    swept="k",
    spread=1.7,  # docs/results/dapo_ablation, 18 seeds, pooled over rows
    scatter=2.2,  # the same of differences
    minutes={"mini": 0.4}.get(scale, 0.0),
    machine="one CPU core",
  )


if __name__ == "__main__":
  from grpojax.tools.study import command

  command.run("experiments.staleness", study, ("mini", "tiny"))
