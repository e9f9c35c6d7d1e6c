"""On-policy distillation: the student's own completions, the teacher's verdict on each of their tokens.

    python -m grpojax.main --config=configs/distill.py --config.teacher.path=exported/teacher
    ... --config.objective.advantage.fn=zscore             # slime: on top of GRPO's advantage
    ... --config.objective.rescale.gamma=0.5               # TRL's iw_opd: the first gaps count more
    ... --config.reference=init --config.objective.penalty="{'kl': {'fn': 'kl_k2', 'beta': 0.01}}"

A = log π_T − log π of each token, REINFORCE with IcePop's gate: NeMo RL's MOPD.  On-policy that is the
gradient of KL(π‖π_T), token by token.  The teacher is a folder, as `grpojax export` writes, of any size and
architecture and of the same tokenizer.  Rewards are reported and not trained on; `teacher_kl` is the distance
in nats a token.
"""

from ml_collections import ConfigDict

from grpojax.recipes import base


def get_config(arg: str = "mini") -> ConfigDict:
  c = base.get_config(arg)
  c.name = "distill"
  learn_from_teacher(c)
  return c


def learn_from_teacher(c: ConfigDict) -> None:
  """Sets the objective, in place of that of a config without terms of its own."""
  c.objective.advantage = dict(fn="none")
  c.objective.rescale = dict(fn="opd", scale=1.0, student="old", gamma=0.0)
  c.objective.surrogate = dict(fn="reinforce")
  c.objective.aggregate = dict(fn="token_mean")
  c.objective.correct.icepop = dict(fn="icepop", low=0.5, high=5.0)
  c.updates_per_rollout = 1
