"""STaR / ReST-EM: answer, keep what is right, learn it from the base; again with the policy that came of it.

    grpojax pipeline star --workdir=runs/star

Each round samples with the policy of the round before and trains the base anew, on the rows of that round:
https://arxiv.org/abs/2203.14465, https://arxiv.org/abs/2312.06585.  Answers are sampled, as in ReST-EM; those
of STaR are greedy, with hints, which are not given here.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base, stages

ROUNDS = 2


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "star"
  c.sample.balance = "none"  # at most so many a prompt, whatever its difficulty: ReST-EM's cut-off
  c.stages = stages.between_evaluations(rounds(ROUNDS))
  return c


def rounds(number: int) -> list[dict]:
  """Returns the stages of so many rounds."""
  made, grower = [], "base"
  for n in range(1, number + 1):
    made.append(dict(name=f"grow{n}", kind="sample", init=grower))
    made.append(dict(name=f"improve{n}", kind="sft", init="base", samples=f"grow{n}"))
    grower = f"improve{n}"
  return made
