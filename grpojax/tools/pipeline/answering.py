"""Where a stage works, and how a stage that trains nothing asks questions and records it."""

import time
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from grpojax.runtime import metrics
from grpojax.tools.evaluate import benchmark


class Place(NamedTuple):
  """Folder of a stage, and the policies and data that it is given."""

  folder: Path
  policy: str  # folder; "" of the base
  rows: tuple[Path, ...] = ()  # samples.jsonl of the stages whose rows it learns
  reference: str = ""  # folder of a policy of its own; "": as config.reference says
  teachers: dict[str, str] = {}  # key of config.teacher -> folder  # noqa: RUF012 (never changed)


def answers(config: ConfigDict, place: Place, suites: list[str], limit: int | None):
  """Returns (the evaluation, suite -> items on process 0, seconds); goes on where it was stopped."""
  start = time.perf_counter()
  job = benchmark.prepare(config, place.policy, suites, limit)
  params, done = benchmark.begin(job, place.folder)
  answered = benchmark.run(job, place.folder, params, done)
  return job, answered, time.perf_counter() - start


def record(folder: Path, counts: dict[str, float], answered: dict[str, list[dict]], seconds: float) -> None:
  """Writes the record of a stage that trains nothing: its counts, tokens, and seconds of its last start."""
  samples = [sample for items in answered.values() for item in items for sample in item["samples"]]
  spent = {"num_tokens": sum(sample["length"] for sample in samples), "time/eval": seconds}
  with metrics.Writer(folder) as writer:
    writer.write("eval", 0, counts | spent)
