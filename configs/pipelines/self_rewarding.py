"""Self-rewarding: the policy judges its own answers, and learns the best over the worst; round by round.

    grpojax pipeline self_rewarding --workdir=runs/self_rewarding

First it learns to judge: by rubrics of its own answers, which the verifier has scored, beside right answers.
From then on no verifier is asked: of each question the policy's own mean score makes a pair, DPO learns the
pairs, and the policy that came of it judges the next round.  https://arxiv.org/abs/2401.10020, whose judge
learned from people's scores.

Watch `judge/agreement`, how often a right answer is scored over a wrong one: at 0.5 the judge knows nothing,
and what the loop learns is its taste.  `sample/length_correlation` says whether that taste is length, and
`sample/pass@1` beside `sample/pass@8` whether all answers become one.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base, stages

ROUNDS = 2


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "self_rewarding"
  c.stages = stages.between_evaluations(rounds(c, ROUNDS))
  return c


def lessons(c: ConfigDict) -> list[dict]:
  """Returns the stages in which the policy learns to judge."""
  room = dict(prompt_budget=max(c.judge.prompt_budget, c.data.prompt_budget))  # for rubrics
  return [
    dict(name="examples", kind="sample", init="base", sample=dict(rows="judgements")),
    dict(name="seed", kind="sft", init="base", samples="examples", data=room),
  ]


def rounds(c: ConfigDict, number: int) -> list[dict]:
  """Returns the lessons, and the stages of so many rounds."""
  made = lessons(c)
  for n in range(1, number + 1):
    made.append(dict(name=f"judge{n}", kind="sample", sample=dict(rows="pairs", by="judge")))
    made.append(dict(name=f"prefer{n}", kind="preference", samples=f"judge{n}"))
  return made
