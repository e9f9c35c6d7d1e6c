"""SPIN: what the data say over what the policy says itself, round by round.  https://arxiv.org/abs/2401.01335

    grpojax pipeline spin --workdir=runs/spin

Each round, the policy answers training questions once; of each question the data's demonstration is the
chosen answer and the policy's own the rejected one, and DPO moves the policy from where it was.  No verifier
is asked: what it would have said is in the report alone.  The embedded task's base has learned demonstrations
of which a third are wrong; those of the rounds have no flaw.  An answer that is like the data's teaches
nothing: `preference/margin` says when it is time to stop.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base, stages

ROUNDS = 2


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "spin"
  c.sample.update(rows="pairs", by="demonstration", samples=1)
  c.stages = stages.between_evaluations(rounds(c, ROUNDS))
  return c


def rounds(c: ConfigDict, number: int) -> list[dict]:
  """Returns the stages of so many rounds."""
  made = []
  for n in range(1, number + 1):
    made.append(dict(name=f"play{n}", kind="sample", data=stages.flawless(c)))
    made.append(dict(name=f"spin{n}", kind="preference", samples=f"play{n}"))
  return made
