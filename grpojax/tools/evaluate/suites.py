"""Suites of questions: the sources of the test split, or the splits that are not trained on."""

import hashlib
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from grpojax.data import pipeline

TRAINING = "train"  # the questions that are trained on: a suite if it is named


class Suite(NamedTuple):
  name: str
  questions: pipeline.Split  # its `ids` are the numbers that key the draws
  ids: list[str]  # names of the questions
  begun: tuple[list[int], ...] = ()  # of each, the tokens of its answer that stand in its prompt; (): none


def find(config: ConfigDict, path, read, wanted: list[str], limit: int | None):
  """Returns (the suites of these names, all if none is `wanted`, of `limit` questions each; notes).

  `read` loads a split of the dataset at `path`.  The training split is a suite if it is named.  Raises
  ValueError for an unknown name.
  """
  split = read(config.eval.split)
  if "source" in split.records[0]:  # each test source is a suite
    source = np.array([record["source"] for record in split.records])
    found = {str(name): (split, np.flatnonzero(source == name)) for name in sorted(set(source))}
    splits = [split]
  else:
    others = [name for name in pipeline.splits(path) if name not in ("train", split.name)]
    splits = [split, *map(read, others)]
    found = {s.name: (s, np.arange(len(s.records))) for s in splits}
  if TRAINING in wanted:
    splits.append(read(TRAINING))
    found[TRAINING] = splits[-1], np.arange(len(splits[-1].records))
  for name in wanted:
    if name not in found:
      raise ValueError(f"--suite names '{name}', but config.data has questions of {', '.join(found)} only.")
  chosen = [_suite(name, *found[name], limit) for name in dict.fromkeys(wanted or found)]
  return chosen, [sentence for split in splits for sentence in _notes(split)]


def _suite(name: str, split: pipeline.Split, rows: np.ndarray, limit: int | None) -> Suite:
  asked = pipeline.select(split, rows[:limit])
  ids = [record.get("uid") or str(row) for row, record in zip(asked.ids, asked.records, strict=True)]
  if len(set(ids)) < len(ids):
    raise ValueError(f"--suite={name}: two questions have the same uid; give each row its own.")
  numbers = np.array([number(f"{name}/{one}") for one in ids], np.int32)
  return Suite(name, asked._replace(ids=numbers), ids)


def number(called: str) -> int:
  """Returns 31 bits that key a question's draws: no other question, suite or order of rows changes them."""
  return int.from_bytes(hashlib.sha256(called.encode()).digest()[:4], "big") >> 1


def _notes(split: pipeline.Split) -> list[str]:
  dropped = f"{split.name}: {split.dropped} prompt(s) over config.data.prompt_budget are in no number"
  return [*split.notes, *([dropped] if split.dropped else [])]
