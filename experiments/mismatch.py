"""The sampler is not quite the learner: what does that cost, and which correction earns it back?

    python -m experiments.mismatch                  # 6 rows x 5 seeds on 2 CPU cores
    python -m experiments.mismatch --scale=tiny     # seconds; for tests

The sampler's weights and KV cache are in int8.  Bounds are those of grpojax/objective/correct.py.
"""

from experiments.common import MINI
from grpojax.tools.study import Figure, Row, Study

CONFIG = "configs/base.py"
INT8 = {"rollout.weights": "int8", "rollout.kv_cache": "int8"}
CORRECTIONS = {
  "none": {},
  "TIS": {"tis": {"fn": "truncated_is", "high": 2.0}},
  "IcePop": {"icepop": {"fn": "icepop", "low": 0.5, "high": 5.0}},
  "MIS": {"mis": {"fn": "masked_is", "high": 2.0}},
  "WTRS": {"wtrs": {"fn": "worst_token", "low": 1e-4}},
}
GAP = {"sampling/sampling_logp_difference/mean": ""}
FIGURES = (
  Figure("Against full precision", "points", {"over_first": ""}, over="rows"),
  Figure("Held-out accuracy", "% of questions", {"eval/pass@1": ""}),
  Figure("Sampler against learner", "mean |difference of log-probs|, nats", GAP),
  Figure("Effective sample size", "% of tokens", {"sampling/effective_sample_size": ""}),
  Figure("Entropy", "nats per token", {"entropy": ""}),
)


def study(scale: str) -> Study:
  common = MINI if scale == "mini" else {}
  row = lambda name, changes: Row(name, f"{CONFIG}:{scale}", common | changes)
  corrected = [
    row(f"int8, {name}", INT8 | ({"objective.correct": how} if how else {}))
    for name, how in CORRECTIONS.items()
  ]
  return Study(
    name=f"mismatch-{scale}",
    title=f"A sampler in int8, and what corrects for it ({scale})",
    question="GRPO without KL. The first row samples from the learner's own parameters.",
    rows=(row("full precision", {}), *corrected),
    figures=FIGURES,
  )


if __name__ == "__main__":
  from grpojax.tools.study import command

  command.run("experiments.mismatch", study, ("mini", "tiny"))
