"""Which part of DAPO matters?  The six rows of the paper's table 1, each with the changes of those above it.

    python -m experiments.dapo_ablation --dry_run              # the plan, and what it costs
    python -m experiments.dapo_ablation                        # 6 rows x 18 seeds on 2 CPU cores, 40 minutes
    python -m experiments.dapo_ablation --rows=1,6 --seeds=8   # naive GRPO and full DAPO only
    python -m experiments.dapo_ablation --scale=small          # one GPU or TPU host
    python -m experiments.dapo_ablation --scale=paper --backend=slurm --out=/shared/dapo \
        --config.model.path=/shared/Qwen2.5-32B --config.data.path=/shared/dapo_math.parquet \
        --config.data.test.aime2024.path=/shared/aime_2024.jsonl

https://arxiv.org/abs/2503.14476: table 1 and section 4.1.  No KL anywhere; rewards are 1 and -1, here 2 and
0, which the group's mean makes the same.  Filtering stays on in the rows below it, as the table has it; the
best published runs have none, because filter and punishment act on the same completions.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base
from grpojax.tools.study import Figure, Study, cumulative

SCALES = ("mini", "small", "paper", "tiny")


def get_config(arg: str = "mini") -> ConfigDict:
  """Returns naive GRPO of that scale, with what all rows share."""
  c = base.get_config(arg)
  c.name = "dapo_ablation"
  c.reward.accuracy.weight = 2.0
  budget = c.rollout.get_ref("max_tokens")
  c.reward.soft_overlong = dict(fn="shaping:soft_overlong", max_tokens=budget, cache=budget // 5, weight=0.0)
  if arg == "mini":
    c.steps = 60
    c.updates_per_rollout = 8  # the paper has 16; with 2 hardly a token is ever clipped here
    c.eval.update(prompts=512, samples=2, every=5)  # all questions; the study averages the last five
  if arg == "small":
    c.updates_per_rollout = 16
  if arg == "paper":
    _paper(c)
  c.checkpoint.every = 10
  return c


def _paper(c: ConfigDict) -> None:
  """Sets what `configs/base.py` does not: DAPO-Math-17k in its form of answer, AIME 2024 as in the paper."""
  c.data.layout = "dapo_math"
  c.data.test.aime2024 = dict(layout="aime", path="")
  c.data.template = "answer_line"
  c.reward.accuracy.form = "answer"
  c.eval.update(prompts=30, samples=32, every=10, temperature=1.0, top_p=0.7)


# The paper's order and its accuracies on AIME 2024 (avg@32, Qwen2.5-32B; R1-Zero's recipe reached 47).
STEPS = (
  ("naive GRPO", {}, 30),
  ("+ overlong filtering", {"objective.select": {"finished": {"fn": "finished"}}}, 36),
  ("+ clip-higher", {"objective.surrogate.high": 0.28}, 38),
  ("+ soft overlong punishment", {"reward.soft_overlong.weight": 1.0}, 41),
  ("+ token-level loss", {"objective.aggregate.fn": "token_mean"}, 42),
  ("+ dynamic sampling", {"dynamic_sampling.enabled": True}, 50),
)
NAIVE, FILTERED, HIGHER, SOFT, TOKEN, FULL = (name for name, _, _ in STEPS)
POWER = dict(
  last=5,
  width=1.5,  # of single rows: the widest of those seeds, 2.9, takes 18 seeds, and their mean 11
  spread=2.1,  # pooled over rows; docs/results/dapo_ablation, five seeds, mean of the last three evaluations
  scatter=3.0,  # of differences between a row and the one before, from the same seeds
  minutes=0.7,  # docs/studies.md
)
ACCURACY, ENTROPY = {"eval/pass@1": "held out"}, {"entropy": "policy"}
CLIPPED_UP = {"clip_ratio/high_mass / clip_ratio/high_mean": "clipped above"}

FIGURES = (  # the first three: does the task have what the parts are made for?
  Figure(
    "Prompts without contrast: naive GRPO", "% of prompts",
    {"prompts/all_right": "all right", "prompts/all_wrong": "all wrong"}, (NAIVE,),
    note="All completions of such a prompt have the same reward, and teach nothing.",
  ),
  Figure(
    "Truncated completions: naive GRPO", "% of completions",
    {"completions/clipped_ratio": "training", "eval/clipped_ratio": "held out"}, (NAIVE,),
  ),
  Figure("Entropy: naive GRPO", "nats per token", ENTROPY, (NAIVE,)),
  Figure("Held-out accuracy", "% of questions", ACCURACY),
  Figure("Accuracy: clip-higher", "% of questions", ACCURACY, (FILTERED, HIGHER)),
  Figure("Entropy: clip-higher", "nats per token", ENTROPY, (FILTERED, HIGHER)),
  Figure(
    "Probability of clipped-up tokens", "mean probability", CLIPPED_UP,
    (FILTERED, HIGHER), note="Under the old policy. The paper finds them improbable (its figure 3a).",
  ),
  Figure("Prompts that are all right", "% of prompts", {"prompts/all_right": "all right"}),
  Figure("Length: token-level loss", "tokens", {"completions/mean_length": "mean"}, (SOFT, TOKEN)),
  Figure("Entropy: token-level loss", "nats per token", ENTROPY, (SOFT, TOKEN)),
  Figure("Accuracy: overlong filtering", "% of questions", ACCURACY, (NAIVE, FILTERED)),
  Figure(
    "Truncated: overlong filtering", "% of completions", {"eval/clipped_ratio": "held out"},
    (NAIVE, FILTERED),
  ),
  Figure("Accuracy: soft punishment", "% of questions", ACCURACY, (HIGHER, SOFT)),
  Figure("Dynamic sampling, by steps", "% of questions", ACCURACY, (TOKEN, FULL)),
  Figure(
    "Dynamic sampling, by tokens", "% of questions", ACCURACY, (TOKEN, FULL), "tokens",
    "Its steps take more rollouts: here they are paid for.",
  ),
)  # fmt: skip


def study(scale: str) -> Study:
  return Study(
    name=f"dapo_ablation-{scale}",
    title=f"DAPO, part by part ({scale})",
    question="Each row has the changes of those above it. The paper's column is its own: AIME 2024, avg@32, "
    "with Qwen2.5-32B, where R1-Zero's recipe had 47.",
    rows=cumulative(f"experiments/dapo_ablation.py:{scale}", *STEPS),
    figures=FIGURES,
    seeds={"mini": 18, "small": 5}.get(scale, 1),
    quoted="paper",
    machine="one CPU core",
    **(POWER if scale == "mini" else {}),
  )


if __name__ == "__main__":
  from grpojax.tools.study import command

  command.run("experiments.dapo_ablation", study, SCALES)
