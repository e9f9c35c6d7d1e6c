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

from grpojax.recipes import base

ROUNDS = 2


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "self_rewarding"
  room = dict(prompt_budget=max(c.judge.prompt_budget, c.data.prompt_budget))  # for rubrics
  c.stages = [
    ConfigDict(dict(name="before", kind="evaluate", init="base")),
    ConfigDict(dict(name="examples", kind="sample", init="base", sample=dict(rows="judgements"))),
    ConfigDict(dict(name="seed", kind="sft", init="base", samples="examples", data=room)),
  ]
  for number in range(1, ROUNDS + 1):
    judge, prefer, pairs = f"judge{number}", f"prefer{number}", dict(rows="pairs", by="judge")
    c.stages.append(ConfigDict(dict(name=judge, kind="sample", init="previous", sample=pairs)))
    c.stages.append(ConfigDict(dict(name=prefer, kind="preference", init="previous", samples=judge)))
  c.stages.append(ConfigDict(dict(name="after", kind="evaluate", init="previous")))
  return c
