"""Questions from local files: the public datasets by name, or any JSONL or Parquet by its columns.

    config.data.train = {
      "dapo": {"layout": "dapo_math", "path": "/data/dapo-math-17k.parquet"},
      "mine": {"layout": "columns", "path": "/data/mine", "prompt": "messages", "answer": "gold.text"},
    }
    config.data.test = {"aime24": {"layout": "aime", "path": "/data/aime_2024/*.parquet"}}

A source has a name of one's own, which its rows carry; how often it is drawn is config.data.mixture.
What two training sources ask stays with the first by name.  Nothing is fetched.  A new public dataset
is a row of the table in layouts.py.
"""

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from grpojax.data.local import clean, sources

_FIELDS = ("uid", "question", "history", "answer", "tests", "task", "source", "meta")


@dataclasses.dataclass
class LocalConfig(tfds.core.BuilderConfig):
  """Keys of config.data; a source is dict(path, layout), with layout 'columns' also its columns."""

  train: dict = dataclasses.field(default_factory=dict)
  test: dict = dataclasses.field(default_factory=dict)
  on_malformed: str = "skip"  # and count; "error": stop
  dedup: bool = True  # one row a question, none where rows disagree about its answer
  decontaminate: bool = True  # leave out of training what the test split asks


class Local(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  """Rows of text: `history` is the JSON of the messages before the question, `tests` of unit tests."""

  VERSION = tfds.core.Version("1.0.0")
  url_infos = None  # no downloads; the inherited look-up needs a package that tfds does not require
  BUILDER_CONFIGS = [LocalConfig(name="default")]  # noqa: RUF012 (the library's own idiom)

  @staticmethod
  def source_files(settings: dict[str, Any]) -> list[Path]:
    """The files that decide what a dataset of these settings holds.  Raises ValueError."""
    return [path for source in sources.find(settings) for path in source.files]

  def _info(self):
    text = tfds.features.Text
    return tfds.core.DatasetInfo(
      builder=self,
      description="Questions from local files.",
      features=tfds.features.FeaturesDict({field: text() for field in _FIELDS}),
      metadata=tfds.core.MetadataDict(),  # notes {split: [sentence]}, counts {split: {source: {}}}
    )

  def _split_generators(self, dl_manager):
    config = self.builder_config
    if config.on_malformed not in ("skip", "error"):
      raise ValueError(f"config.data.on_malformed = '{config.on_malformed}', but it is 'skip' or 'error'.")
    rows = {split: {} for split in sources.SPLITS}
    counts = {split: {} for split in sources.SPLITS}
    for source in sources.find(dataclasses.asdict(config)):
      read = sources.read(source, config.on_malformed, config.dedup)
      rows[source.split][source.name], counts[source.split][source.name] = read
    notes = compare(rows, counts, config)
    self.info.metadata["notes"] = notes
    self.info.metadata["counts"] = {
      split: {name: dataclasses.asdict(count) for name, count in of_split.items()}
      for split, of_split in counts.items()
    }
    return {split: self._generate_examples(of_split) for split, of_split in rows.items()}

  def _generate_examples(self, of_split):
    copies = Counter()
    for name, examples in of_split.items():
      for example in examples:
        uid = f"{name}/{example['uid']}"
        copies[uid] += 1
        uid += f"/{copies[uid]}" if copies[uid] > 1 else ""  # without dedup
        yield uid, example | dict(uid=uid, source=name)


def compare(rows: dict, counts: dict, config: LocalConfig) -> dict[str, list[str]]:
  """Sources against each other and training against test, in place; the sentences to be said of each.

  Test sources may repeat each other, for each is a benchmark of its own.
  """
  tested = {example["uid"] for examples in rows["test"].values() for example in examples}
  seen: set[str] = set()
  notes = {split: [] for split in rows}
  for name, count in counts["train"].items():
    clean_rows, both = clean.without(rows["train"][name], tested)
    if config.decontaminate:
      rows["train"][name], count.in_test = clean_rows, both
    elif both:
      notes["train"].append(
        f"{name}: {both} rows ask what the test split asks, and stay in (config.data.decontaminate)"
      )
    if config.dedup:
      rows["train"][name], again = clean.without(rows["train"][name], seen)
      count.repeats += again
      seen |= {example["uid"] for example in rows["train"][name]}
  for split, of_split in counts.items():
    for name, count in of_split.items():
      count.kept = len(rows[split][name])
      notes[split].append(count.sentence(name))
    if not any(rows[split].values()):
      raise ValueError(f"config.data.{split} has no rows left ({'; '.join(notes[split])}); add others.")
  return notes
