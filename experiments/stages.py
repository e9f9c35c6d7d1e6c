"""Pipelines as rows of a study: evaluations between their stages, and what each stage gave."""

import numpy as np
from ml_collections import ConfigDict

from grpojax.tools.pipeline.stages import TRAINED
from grpojax.tools.study import Section, statistics, table
from grpojax.tools.study.chains import AFTER

BEFORE, DONE = "before", "_done"
SAMPLES = 8  # answers to each question, of an evaluation between stages


def ask_all(c: ConfigDict, scale: str) -> None:
  """Has stages that train ask all held-out questions, as the evaluations between them do."""
  if scale == "mini":
    c.eval.update(prompts=512, samples=2)


def measured(stages: list[dict], start: str = "base") -> list[ConfigDict]:
  """Returns the stages, with an evaluation of `start` before them and one of each policy that they leave.

  A `base` stage is a start and none that is trained.
  """
  evaluation = lambda name, **init: dict(name=name, kind="evaluate", eval=dict(samples=SAMPLES), **init)
  made = [stage for stage in stages if stage["kind"] == "base"]
  made.append(evaluation(BEFORE, init=start))
  for stage in stages:
    if stage["kind"] != "base":
      made.append(stage)
      made += [evaluation(f"{stage['name']}{DONE}")] if stage["kind"] in TRAINED else []
  return [ConfigDict(stage) for stage in made]


def reads(*chains: list[ConfigDict]) -> tuple[str, ...]:
  """Returns the metrics of these chains' evaluations, which `after_each` reads."""
  names = (stage.name for chain in chains for stage in chain if stage.kind == "evaluate")
  return tuple(dict.fromkeys(f"{AFTER}{name}" for name in names))


def after_each(results: dict) -> Section:
  """Returns accuracy and tokens after each stage of every row, and the change since the one before."""
  body = []
  for row in results["rows"]:
    before = None
    curves = [pair for pair in results["curves"][row["label"]].items() if pair[0].startswith(AFTER)]
    for name, curve in sorted(curves, key=lambda pair: pair[1]["steps"]):  # as stages follow each other
      values = [of_seed[0] for of_seed in curve["values"]]
      change = statistics.difference(values, before)._asdict() if before else None
      stage = name.removeprefix(AFTER).removesuffix(DONE)
      tokens = np.mean([of_seed[0] for of_seed in curve["tokens"]])
      level = table.level(statistics.estimate(values)._asdict())
      body.append([row["label"], stage, level, table.change(change), f"{tokens / 1e3:,.1f}"])
      before = values
  head = ["", "after the stage", "pass@1, %", "change, points", "tokens until then, k"]
  note = "Mean over seeds; changes are those since the stage above, paired by seed."
  return Section("After each stage", note, head, body)
