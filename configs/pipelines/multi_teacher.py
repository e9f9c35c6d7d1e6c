"""Multi-teacher distillation: a specialist by RL for each domain, then one student that learns from all.

    grpojax pipeline multi_teacher --workdir=runs/multi_teacher

The form that R1's "RL on all scenarios" has taken (MOPD): each completion of the student is read by the
teacher of its question's domain.  The embedded task's domains are questions in digits and questions in words;
both specialists and the student start from the base.
"""

from ml_collections import ConfigDict

from grpojax.recipes import grpo


def get_config(arg: str = "mini") -> ConfigDict:
  c = grpo.get_config(arg)
  c.name = "multi_teacher"
  teachers = dict(column="task", paths={"expression": "digits", "*": "words"})  # a story's task is its name
  c.stages = [
    ConfigDict(dict(name="before", kind="evaluate", init="base")),
    ConfigDict(dict(name="digits", kind="rl", init="base", data=dict(form="digits"))),
    ConfigDict(dict(name="words", kind="rl", init="base", data=dict(form="words"))),
    ConfigDict(dict(name="student", kind="distill", init="base", teacher=teachers)),
    ConfigDict(dict(name="after", kind="evaluate", init="student")),
  ]
  return c
