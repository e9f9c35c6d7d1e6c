"""STaR / ReST-EM: answer, keep what is right, learn it from the base; again with the policy that came of it.

    grpojax pipeline star --workdir=runs/star

Each round samples with the policy of the round before and trains the base anew, on the rows of that round:
https://arxiv.org/abs/2203.14465, https://arxiv.org/abs/2312.06585.  Answers are sampled, as in ReST-EM; those
of STaR are greedy, with hints, which are not given here.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base

ROUNDS = 2


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "star"
  c.sample.balance = "none"  # at most so many a prompt, whatever its difficulty: ReST-EM's cut-off
  c.stages = [ConfigDict(dict(name="before", kind="evaluate", init="base"))]
  grower = "base"
  for number in range(1, ROUNDS + 1):
    grow, improve = f"grow{number}", f"improve{number}"
    c.stages.append(ConfigDict(dict(name=grow, kind="sample", init=grower)))
    c.stages.append(ConfigDict(dict(name=improve, kind="sft", init="base", samples=grow)))
    grower = improve
  c.stages.append(ConfigDict(dict(name="after", kind="evaluate", init="previous")))
  return c
