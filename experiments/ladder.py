"""From GRPO to ScaleRL, step by step, and ScaleRL with each of its parts left out.

    python -m experiments.ladder --dry_run         # the plan, and what it can detect
    python -m experiments.ladder                        # 14 rows x 8 seeds: 85 minutes on 2 CPU cores
    python -m experiments.ladder --scale=tiny           # seconds a run; for tests
    grpojax scale runs/ladder-mini/runs/ladder*/seed*   # asymptote and exponent of every row, with intervals
    grpojax scale runs/ladder-mini/runs/one*/seed*      # the same of ScaleRL with one part less

The ladder is that of https://arxiv.org/abs/2510.13786, which compares asymptotes: A at 8B is below .5 for
GRPO as R1 has it, .52 for DAPO, .58 for MiniMax-M1's CISPO with its head in float32, .61 for ScaleRL.  Each
row has the changes of those above it.  Activations are bfloat16, or a head in float32 would be nothing new.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base, scale_rl
from grpojax.tools.study import Figure, Row, Study, cumulative

GROUPS = ("ladder", "one out")
TOKENS = "token_mean"


def get_config(arg: str = "mini") -> ConfigDict:
  """Returns GRPO without KL in bfloat16, eight updates a rollout, evaluated on all questions."""
  c = base.get_config(arg)
  c.name = "ladder"
  c.model.dtype = "bfloat16"
  budget = c.rollout.get_ref("max_tokens")
  c.reward.soft_overlong = dict(fn="shaping:soft_overlong", max_tokens=budget, cache=budget // 5, weight=0.0)
  if arg == "mini":
    c.steps, c.updates_per_rollout = 60, 8
    c.eval.update(prompts=512, samples=2, every=5)
  c.checkpoint.every = 20
  return c


def _scale_rl() -> dict:
  """Returns what is left of configs/scale_rl.py above the named steps: its advantage, and against whom."""
  c = scale_rl.get_config()
  return {
    "objective.advantage": c.objective.advantage.to_dict(),
    "objective.rescale": c.objective.rescale.to_dict(),
    "moment.kind": c.moment.kind,
    "objective.shape": c.objective.shape.to_dict(),
    "dynamic_sampling.enabled": False,  # groups without contrast are dropped, and not refilled
    "reward.soft_overlong.weight": 0.0,
  }


DAPO = {
  "objective.surrogate": {"fn": "ppo_clip", "low": 0.2, "high": 0.28},
  "objective.aggregate": {"fn": TOKENS},
  "objective.select": {"mixed_groups": {"fn": "mixed_groups"}},
  "dynamic_sampling.enabled": True,
  "reward.soft_overlong.weight": 1.0,
}
CISPO = {"objective.surrogate": {"fn": "cispo", "w_max": 5.0, "w_min": 0.0}}
HEAD = {"model.head_dtype": "float32"}
PROMPT = {"objective.aggregate": {"fn": "prompt_mean", "prompts": "nonempty"}}
SOLVED = {"difficulty.kind": "ema", "difficulty.rate": 1.0, "difficulty.drop_solved": 0.9}
STEPS = (
  ("GRPO", {}, None),
  ("DAPO", DAPO, None),
  ("CISPO", CISPO, None),
  ("+ FP32 head", HEAD, None),
  ("+ prompt mean", PROMPT, None),
  ("+ no-positive-resampling", SOLVED, None),
  ("ScaleRL", _scale_rl(), None),
)
WITHOUT = {  # part of ScaleRL -> what stands in its place
  "CISPO: DAPO's clip": {"objective.surrogate": DAPO["objective.surrogate"]},
  "FP32 head": {"model.head_dtype": ""},
  "prompt mean: token mean": {"objective.aggregate": {"fn": TOKENS}},
  "no-positive-resampling": {"difficulty.kind": "", "difficulty.drop_solved": 0.0},
  "its advantage: GRPO's": {
    "objective.advantage": {"fn": "zscore", "eps": 1e-6, "ddof": 1},
    "objective.rescale": {"fn": "identity"},
    "moment.kind": "",
  },
  "dropping groups without contrast": {"objective.select": {}},
}  # fmt: skip


def rows(scale: str) -> tuple[Row, ...]:
  """Returns the ladder, and ScaleRL with one part less, in a group of its own."""
  config = f"experiments/ladder.py:{scale}"
  climbed = cumulative(config, *STEPS, group=GROUPS[0])
  whole = climbed[-1]._replace(group=GROUPS[1])
  less = lambda part, changes: Row(f"- {part}", config, whole.changes | changes, group=GROUPS[1])
  return (*climbed, whole, *(less(part, changes) for part, changes in WITHOUT.items()))


def study(scale: str) -> Study:
  climbed, less = (tuple(row.label for row in rows(scale) if row.group == group) for group in GROUPS)
  return Study(
    name=f"ladder-{scale}",
    title=f"From GRPO to ScaleRL ({scale})",
    question="Each row of the ladder has the changes of those above it; rows of the second group are ScaleRL "
    "with one part less, and are compared with it. `grpojax scale` fits their curves against compute.",
    rows=rows(scale),
    figures=(
      Figure("Against the first, at equal tokens", "points", {"over_first_at_equal_tokens": ""}, over="rows"),
      Figure("Against the first, after equal steps", "points", {"over_first": ""}, over="rows"),
      Figure("The ladder", "% of questions", {"eval/pass@1": ""}, climbed, over="tokens"),
      Figure("One part less", "% of questions", {"eval/pass@1": ""}, less, over="tokens"),
      # ScaleRL takes the sampler's log-probs for the old ones, and so does not measure the gap.
      Figure(
        "Sampler against learner", "nats", {"sampling/sampling_logp_difference/mean": ""}, climbed[:-1]
      ),
      Figure("Entropy, the ladder", "nats per token", {"entropy": ""}, climbed),
      Figure("Entropy, one part less", "nats per token", {"entropy": ""}, less),
    ),
    seeds=8,
    last=5 if scale == "mini" else 1,
    spread=1.6,  # docs/results/dapo_ablation, 18 seeds, pooled over rows
    scatter=2.0,  # the same of differences
  )


if __name__ == "__main__":
  from grpojax.tools.study import command

  command.run("experiments.ladder", study, ("mini", "tiny"))
