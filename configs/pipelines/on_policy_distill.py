"""On-policy distillation: the student answers, and a teacher that RL made says what it makes of each token.

    grpojax pipeline on_policy_distill --workdir=runs/on_policy_distill

Twice from the same student: `tokens` learns by the teacher's log-probs of the tokens that were sampled, as a
policy gradient (NeMo RL's form, configs/distill.py); `vocabulary` by the reverse KL over all tokens that
might have been (GKD, https://arxiv.org/abs/2306.13649, on the student's own answers alone).
"""

from ml_collections import ConfigDict

from grpojax.recipes import grpo
from grpojax.recipes.pipelines.distill import student

GKD = dict(
  teacher=dict(path="teacher", divergence="reverse_kl"),
  objective=dict(component=dict(kd=dict(fn="gkd", coef=1.0, stream="actions")), rescale=dict(fn="identity")),
  rows="single",
  microbatches=1,
)


def get_config(arg: str = "mini") -> ConfigDict:
  c = grpo.get_config(arg)
  c.name = "on_policy_distill"
  c.stages = [
    ConfigDict(student(c)),
    ConfigDict(dict(name="before", kind="evaluate", init="student")),
    ConfigDict(dict(name="teacher", kind="rl", init="base")),
    ConfigDict(dict(name="tokens", kind="distill", init="student", teacher="teacher")),
    ConfigDict(dict(name="after", kind="evaluate", init="tokens")),
    ConfigDict(dict(name="vocabulary", kind="distill", init="student", **GKD)),
    ConfigDict(dict(name="after_vocabulary", kind="evaluate", init="vocabulary")),
  ]
  return c
