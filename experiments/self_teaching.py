"""How far does a policy get that teaches itself?  STaR, self-rewarding, SPIN and RL, from the same start.

    python -m experiments.self_teaching --dry_run      # the plan
    python -m experiments.self_teaching                # 5 rows x 5 seeds: 37 minutes of two cores
    python -m experiments.self_teaching --scale=tiny --rows=1,3

Every row has ROUNDS rounds, each measured on all held-out questions.  STaR and RL ask the verifier; SPIN has
demonstrations without a flaw; of self-rewarding only the judge's first lessons come from the verifier.
"""

from ml_collections import ConfigDict

from experiments import stages
from grpojax.recipes import base
from grpojax.recipes.pipelines import self_rewarding, self_rewarding_grpo, spin, star
from grpojax.tools.study import Figure, Row, Study

ROUNDS = 3
NAMES = {
  "rl": "RL", "star": "STaR", "self_rewarding": "self-rewarding by DPO",
  "self_rewarding_grpo": "self-rewarding by GRPO", "spin": "SPIN",
}  # fmt: skip


def get_config(arg: str = "mini-star") -> ConfigDict:
  """Returns the pipeline of "SCALE-WHICH"."""
  scale, _, which = arg.partition("-")
  c = base.get_config(scale)
  c.name = f"self_teaching_{which}"
  if which == "rl":
    made = [dict(name=f"rl{n}", kind="rl") for n in range(1, ROUNDS + 1)]
  elif which == "star":
    c.sample.balance = "none"
    made = star.rounds(ROUNDS)
  elif which == "self_rewarding":
    made = self_rewarding.rounds(c, ROUNDS)
  elif which == "self_rewarding_grpo":
    made = self_rewarding_grpo.rounds(c, ROUNDS)
  else:
    c.sample.update(rows="pairs", by="demonstration", samples=1)
    made = spin.rounds(c, ROUNDS)
  stages.ask_all(c, scale)
  c.stages = stages.measured(made)
  return c


def study(scale: str) -> Study:
  return Study(
    name=f"self_teaching-{scale}",
    title=f"Policies that teach themselves ({scale})",
    question=f"{ROUNDS} rounds each, from the same base; rows are compared with RL by the true verifier.",
    rows=tuple(Row(name, f"experiments/self_teaching.py:{scale}-{which}") for which, name in NAMES.items()),
    figures=(
      Figure("pass@1 by tokens", "% of questions", {"eval/pass@1": ""}, over="tokens"),
      Figure("pass@8 by tokens", "% of questions", {"eval/pass@8": ""}, over="tokens"),
      Figure("Length", "tokens", {"eval/mean_length": ""}, over="tokens"),
      Figure("Agreement of the judge with the truth", "% of pairs", {"judge/agreement": ""}),
      Figure("Correlation of reward and length", "", {"sample/length_correlation": ""}),
    ),
    sections=(stages.after_each,),
    reads=stages.reads(*(get_config(f"{scale}-{which}").stages for which in NAMES)),
  )


if __name__ == "__main__":
  from grpojax.tools.study import command

  command.run("experiments.self_teaching", study, ("mini", "tiny"))
