"""Where a stage works, and how a stage that trains nothing asks questions and records it."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from grpojax.runtime import metrics
from grpojax.tools.evaluate import benchmark


class Place(NamedTuple):
  """Folder of a stage, and the policies, data and programs that it is given."""

  folder: Path
  policy: str  # folder; "" of the base
  share: Callable  # shared.sharing's: programs of stages that are the same are built once
  rows: tuple[Path, ...] = ()  # samples.jsonl of the stages whose rows it learns
  reference: str = ""  # folder of a policy of its own; "": as config.reference says
  teachers: dict[str, str] = {}  # key of config.teacher -> folder  # noqa: RUF012 (never changed)


def answers(config: ConfigDict, place: Place, suites: list[str], limit: int | None):
  """Returns (the evaluation, suite -> items on process 0); goes on where it was stopped."""
  job = benchmark.prepare(config, place.policy, suites, limit, share=place.share)
  params, done = benchmark.begin(job, place.folder)
  answered = benchmark.run(job, place.folder, params, done)
  return job, answered


def record(folder: Path, counts: dict[str, float], samples: Iterable[dict], begun: float) -> None:
  """Writes the record of a stage that trains nothing: its counts, and what it has spent.

  That is the tokens of all `samples`, and the seconds since `begun`, those of its last start.
  """
  tokens = sum(sample["length"] for sample in samples)
  spent = {"num_tokens": tokens, "time/eval": time.perf_counter() - begun}
  with metrics.Writer(folder) as writer:
    writer.write("eval", 0, counts | spent)


def samples_of(items: Iterable[dict]) -> list[dict]:
  """Returns all answers of the items."""
  return [sample for item in items for sample in item["samples"]]
