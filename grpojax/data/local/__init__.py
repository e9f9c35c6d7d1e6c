"""Questions from local files and generators: public datasets by name, any file by its columns, reasoning-gym.

    config.data.train = {
      "dapo": {"layout": "dapo_math", "path": "/data/dapo-math-17k.parquet"},
      "mine": {"layout": "columns", "path": "/data/mine", "prompt": "messages", "answer": "gold.text"},
      "sums": {"task": "reasoning_gym:chain_sum", "knobs": {"max_terms": 3}, "rows": 2000},
    }
    config.data.test = {"aime24": {"layout": "aime", "path": "/data/aime_2024/*.parquet"}}

For one file, `path` (with layout, prompt, answer, tests, meta) and `test_path` are the short form; for one
generator, config.data.task with knobs and rows.  Without any test source `held_out` training rows are the
test split, the first by the hash of their question.

A source has a name of one's own, which its rows carry; config.data.mixture sets how often it is drawn.
A question of two training sources stays with the first by name.  Test sources alone make a dataset to
evaluate on.  Nothing is fetched.  A new public dataset is a row of the table in layouts.py.
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
  """Keys of config.data; a source is dict(path, layout), with layout 'columns' its columns, or dict(task)."""

  task: str = "local"  # or "reasoning_gym:GENERATOR", a source of its own
  knobs: dict = dataclasses.field(default_factory=dict)  # of that generator
  rows: int = 4096  # that a generator draws
  version_seed: int = 0  # another one, other rows
  train: dict = dataclasses.field(default_factory=dict)
  test: dict = dataclasses.field(default_factory=dict)
  path: str = ""  # a source of its own, in this layout
  test_path: str = ""
  subset: str = ""  # of a dataset on the hub
  split: str = ""  # there, or in a folder of save_to_disk; "": "train"
  test_split: str = ""  # of test_path; "": "test"
  layout: str = ""  # "": that of a dataset which is known by its name on the hub, else "columns"
  prompt: str = "prompt"
  answer: str = "answer"
  tests: str = ""
  meta: str = ""  # columns that the reward reads beside these, separated by commas; "*": all
  held_out: int = 256  # rows; a tenth of them at most
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
    """Returns the files that decide what a dataset of these settings holds.  Raises ValueError."""
    complete = dataclasses.asdict(LocalConfig(name="complete", **settings))
    return [path for source in sources.find(complete) for path in source.files]

  def _info(self):
    text = tfds.features.Text
    return tfds.core.DatasetInfo(
      builder=self,
      description="Questions from local files and generators.",
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
    aside = hold_out(rows, config.held_out) if not rows["test"] else []
    notes = compare(rows, counts, config)
    notes["test"] += aside
    self.info.metadata["notes"] = notes
    self.info.metadata["counts"] = {
      split: {name: dataclasses.asdict(count) for name, count in of_split.items()}
      for split, of_split in counts.items()
    }
    return {split: self._generate_examples(of_split) for split, of_split in rows.items() if of_split}

  def _generate_examples(self, of_split):
    copies = Counter()
    for name, examples in of_split.items():
      for example in examples:
        uid = f"{name}/{example['uid']}"
        copies[uid] += 1
        uid += f"/{copies[uid]}" if copies[uid] > 1 else ""  # without dedup
        yield uid, example | dict(uid=uid, source=name)


def hold_out(rows: dict, wanted: int) -> list[str]:
  """Moves the training rows whose questions' hashes come first to a test split; returns how many."""
  train = [(example["uid"], name, example) for name in rows["train"] for example in rows["train"][name]]
  questions = sorted({uid for uid, *_ in train})
  most = max(1, len(questions) // 10)
  aside = set(questions[: min(wanted, most)])
  if not wanted or len(aside) == len(questions):
    raise ValueError(
      f"config.data.test names no source, and of {len(questions)} questions config.data.held_out ="
      f" {wanted} leaves no two splits; give a test source."
    )
  rows["test"]["held_out"] = [example for uid, _, example in train if uid in aside]
  for name, examples in rows["train"].items():
    rows["train"][name] = [example for example in examples if example["uid"] not in aside]
  more = f"; config.data.held_out = {wanted} is more than a tenth of {len(questions)} questions"
  said = f"held_out: {len(rows['test']['held_out'])} of the training rows, by their questions' hashes"
  return [said + (more if wanted > most else "")]


def compare(rows: dict, counts: dict, config: LocalConfig) -> dict[str, list[str]]:
  """Deduplicates sources against each other and training against test, in place; returns notes per split.

  Test sources may repeat each other, for each is a benchmark of its own.
  """
  tested = {clean.folded_hash(example) for examples in rows["test"].values() for example in examples}
  seen: set[str] = set()
  notes = {split: [] for split in rows}
  for name, count in counts["train"].items():
    clean_rows, both = clean.exclude(rows["train"][name], tested, clean.folded_hash)
    if config.decontaminate:
      rows["train"][name], count.in_test = clean_rows, both
    elif both:
      notes["train"].append(
        f"{name}: {both} rows ask what the test split asks, and stay in (config.data.decontaminate)"
      )
    if config.dedup:
      rows["train"][name], again = clean.exclude(rows["train"][name], seen)
      count.repeats += again
      seen |= {example["uid"] for example in rows["train"][name]}
  for split, of_split in counts.items():
    for name, count in of_split.items():
      count.kept = len(rows[split][name])
      notes[split].append(count.sentence(name))
    if of_split and not any(rows[split].values()):
      raise ValueError(f"config.data.{split} has no rows left ({'; '.join(notes[split])}); add others.")
  return notes
