"""Dataset of an environment's tasks: their first observations as prompts, and a planner's games to imitate.

    config.data.task = "grpojax.rollout.envs.rows:Tasks"

`question` is a task's first observation, so that its prompt is encoded as any other's; `number` says to the
environment which task it is; `episode` is a game of the environment's own planner in JSON, [[action,
observation], ...] with "" for the last observation.  No two rows have the same question, in whatever splits,
unless the environment has only one task.
"""

import dataclasses
import json
import os
from collections.abc import Iterator

import tensorflow_datasets as tfds

from grpojax.rewards import pool
from grpojax.rollout.envs import build, planned

_SPACING = 1_000_000  # numbers of one split of one version
_AT_ONCE = 64  # tasks of one call of a worker
_GIVE_UP_AFTER = 1024  # tasks in a row of which none is new
_TIMEOUT = 600.0  # seconds for so many tasks at once


@dataclasses.dataclass
class TasksConfig(tfds.core.BuilderConfig):
  """Keys of config.data; sizes are tasks, and `wrong` the share of a planner's moves that are random."""

  environment: str = "frozen_lake"  # as config.env.name
  knobs: dict = dataclasses.field(default_factory=dict)  # as config.env.knobs
  version_seed: int = 0
  train: int = 8192
  validation: int = 256
  test: int = 512
  wrong: float = 0.45


class Tasks(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  """Tasks that an environment draws by number; nothing is downloaded."""

  VERSION = tfds.core.Version("1.0.0")
  url_infos = None  # no downloads; the inherited look-up needs a package that tfds does not require
  BUILDER_CONFIGS = [TasksConfig(name="default")]  # noqa: RUF012 (the library's own idiom)

  @staticmethod
  def source_files(settings: dict) -> list:
    """Returns the files that decide the rows, beside this one."""
    return build.source_files(settings.get("environment", TasksConfig.environment))

  def _info(self):
    names = ("uid", "question", "answer", "task", "meta", "number", "episode")
    return tfds.core.DatasetInfo(
      builder=self,
      description="Tasks of an environment of many turns, by number.",
      features=tfds.features.FeaturesDict({name: tfds.features.Text() for name in names}),
    )

  def _split_generators(self, dl_manager):
    c = self.builder_config
    sizes = dict(train=c.train, validation=c.validation, test=c.test)
    if not 0 <= c.wrong <= 1:
      raise ValueError(f"config.data.wrong = {c.wrong}, but it is a share and lies in 0..1.")
    for split, size in sizes.items():
      if not isinstance(size, int) or not 1 <= size <= _SPACING // 2:
        raise ValueError(f"config.data.{split} = {size} rows, but every split has 1 to {_SPACING // 2:,}.")
    seen: set[str] = set()
    drawn = {}
    for place, (split, size) in enumerate(sizes.items()):
      first = (len(sizes) * c.version_seed + place) * _SPACING
      drawn[split] = list(_draw(c, split, size, first, seen))
    return {split: self._generate_examples(rows) for split, rows in drawn.items()}

  def _generate_examples(self, rows):
    for row in rows:
      yield row["uid"], row


def _draw(config: TasksConfig, split: str, size: int, first: int, seen: set[str]) -> Iterator[dict[str, str]]:
  """Yields `size` rows from task number `first` on; `seen` are the questions so far.  Raises ValueError."""
  since_new = found = 0
  while found < size:
    numbers = range(first, first + max(_AT_ONCE, min(size - found, 64 * _AT_ONCE)))
    first = numbers.stop
    for number, (question, game) in zip(numbers, _play(config, numbers), strict=True):
      new = question not in seen or (len(seen) == 1 and since_new >= _AT_ONCE)
      since_new = 0 if question not in seen else since_new + 1
      if new and found < size:
        seen.add(question)
        found += 1
        yield _to_row(config, number, question, game)
    if since_new > _GIVE_UP_AFTER and len(seen) > 1:
      raise ValueError(
        f"config.data.{split} = {size} tasks, but {config.environment} has only {len(seen)} different ones in"
        " all splits; ask for fewer."
      )


def _play(config: TasksConfig, numbers: range) -> list[tuple[str, list | None]]:
  """Returns question and game of each task.  Raises ValueError where a task cannot be played."""
  pieces = [list(numbers[start : start + _AT_ONCE]) for start in range(0, len(numbers), _AT_ONCE)]
  asked = [[config.environment, config.knobs, piece, config.wrong] for piece in pieces]
  workers = min(len(pieces), os.cpu_count() or 1)
  played = []
  for piece in pool.call(f"{planned.__name__}:play", asked, timeout=_TIMEOUT, workers=workers):
    if isinstance(piece, Exception):
      raise ValueError(f"config.data.environment = '{config.environment}' cannot be played ({piece}).")
    played += piece
  return played


def _to_row(config: TasksConfig, number: int, question: str, game: list | None) -> dict[str, str]:
  return dict(
    uid=f"{config.environment}/{number}",
    question=question,
    answer="",
    task=config.environment,
    meta=json.dumps(dict(knobs=config.knobs)),
    number=str(number),
    episode="" if game is None else json.dumps(game),
  )
