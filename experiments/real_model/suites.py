"""The config of evaluations: configs/smollm2.py with the questions of all tasks, each a suite."""

from ml_collections import ConfigDict

from experiments.real_model import tasks
from grpojax.recipes import smollm2


def get_config(arg: str = "") -> ConfigDict:
  c = smollm2.get_config()
  c.name = "real_model"
  first = tasks.changes(next(iter(tasks.TASKS)))
  c.data.update({key.removeprefix("data."): first[key] for key in ("data.task", "data.prompt_budget")})
  c.data.knobs = first["data.knobs"]
  c.data.test = {name: tasks.suite(name) for name in tasks.TASKS}
  return c
