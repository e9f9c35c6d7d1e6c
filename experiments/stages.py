"""Pipelines as rows of a study: evaluations between their stages."""

from ml_collections import ConfigDict

from grpojax.tools.pipeline.stages import TRAINED

BEFORE = "before"


def measured(stages: list[dict], start: str = "base") -> list[ConfigDict]:
  """Returns the stages, with an evaluation of `start` before them and one of each policy that they leave.

  A `base` stage is a start and none that is trained.
  """
  made = [stage for stage in stages if stage["kind"] == "base"]
  made.append(dict(name=BEFORE, kind="evaluate", init=start))
  for stage in stages:
    if stage["kind"] != "base":
      made.append(stage)
      made += [dict(name=f"{stage['name']}_done", kind="evaluate")] if stage["kind"] in TRAINED else []
  return [ConfigDict(stage) for stage in made]
