"""Self-rewarding by group advantages: the policy's own scores are the rewards of GRPO, in place of pairs.

    grpojax pipeline self_rewarding_grpo --workdir=runs/self_rewarding_grpo

As in configs/pipelines/self_rewarding.py it first learns to judge.  Then, round by round, GRPO raises the
score that the policy of the round's start expects to give an answer (grpojax/rewards/judged.py).  The
verifier is asked for the record alone, with weight 0: `accuracy` beside `reward` says how right the judge is.
"""

from ml_collections import ConfigDict

from grpojax.recipes import grpo, stages
from grpojax.recipes.pipelines import self_rewarding

ROUNDS = 2


def get_config(arg: str = "mini") -> ConfigDict:
  c = grpo.get_config(arg)
  c.name = "self_rewarding_grpo"
  c.stages = stages.between_evaluations(rounds(c, ROUNDS))
  return c


def rounds(c: ConfigDict, number: int) -> list[dict]:
  """Returns the stages in which the policy learns to judge, and those of so many rounds."""
  form = {key: c.judge.get_ref(key) for key in ("rubric", "marker", "most")}
  judge = dict(fn="judged:score", path="init", **form)
  own = dict(accuracy=dict(weight=0.0), judge=judge)
  return [
    *self_rewarding.lessons(c),
    *(dict(name=f"rl{n}", kind="rl", reward=own) for n in range(1, number + 1)),
  ]
