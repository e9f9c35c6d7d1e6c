"""Which rows of the dataset a reward is asked on: config.reward.NAME.only = {column: value, or values}.

Rules grade where there are rules, a reward model where there are none (R1, https://arxiv.org/abs/2501.12948,
section 2.3.4).  A reward that is not asked adds nothing, and its number is NaN; one that is asked and
abstains costs the completion.
"""

import json
from collections.abc import Mapping

import numpy as np

Only = Mapping[str, tuple[str, ...]]  # column -> the values of the rows; none: every row


def read(key: str, only) -> Only:
  """Returns config.reward.NAME.only; raises ValueError where it names no column, or none of its values."""
  if not hasattr(only, "items"):
    raise ValueError(f"{key}.only = {only!r} must be a dict of column and value, as {{'source': 'math'}} is.")
  found = {column: (value,) if isinstance(value, str) else tuple(value) for column, value in only.items()}
  for column, values in found.items():
    if not values or not all(isinstance(value, str) for value in values):
      raise ValueError(f"{key}.only.{column} = {only[column]!r} must be a text, or several.")
  return found


def asks(only: Only, row: dict) -> bool:
  """Returns whether a reward is asked on this row of the dataset, by its columns and those in its `meta`."""
  if not only:
    return True
  columns = json.loads(row.get("meta") or "{}") | row
  return all(columns.get(column) in values for column, values in only.items())


def check_rows(all_of: Mapping[str, Only], rows: list[dict]) -> None:
  """Raises ValueError where a row of the training data has no reward, or a reward no row.

  `all_of` are the rewards' `only`, by name.
  """
  if not any(all_of.values()):
    return
  asked = {name: np.array([asks(only, row) for row in rows], bool) for name, only in all_of.items()}
  for name, on in asked.items():
    if not on.any():
      raise ValueError(
        f"config.reward.{name}.only = {dict(all_of[name])} names no row of the training data; name a column"
        " (of files: one that config.data.meta keeps) and values that it has."
      )
  none = ~np.any(list(asked.values()), axis=0)
  if none.any():
    question = rows[int(none.argmax())]["question"]
    raise ValueError(
      f"{none.sum()} questions of the training data have no reward, the first is {question!r:.60}: each"
      " config.reward.NAME.only names others; widen one, or leave them out of the data."
    )


def check(config) -> None:
  """Raises ValueError where a run goes by verdicts, and config.reward.accuracy.only leaves rows without."""
  only = config.reward.get("accuracy", {}).get("only")
  if not only:
    return
  goes_by_verdicts = {
    "dynamic_sampling.enabled": config.dynamic_sampling.enabled,
    "difficulty.kind": config.difficulty.kind,
    "objective.select": any(slot.fn == "mixed_groups" for slot in config.objective.select.values()),
    "objective.advantage": config.objective.advantage.get("fn") in ("gtpo", "grpo_s"),
  }
  for key, does in goes_by_verdicts.items():
    if does:
      raise ValueError(
        f"config.{key} goes by a verdict on every row, and config.reward.accuracy.only leaves some without; "
        f"change config.{key}, or take config.reward.accuracy.only out."
      )
