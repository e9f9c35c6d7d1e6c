"""From config.data to batches: prepare the dataset, load a split as tokens, address its batches.

A batch is a pure function of (seed, its number), so that a resumed run, or a run on another number of
processes, reads the same rows.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import inspect
import io
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import grain
import numpy as np
import tensorflow_datasets as tfds

from grpojax.data import checksums, templates
from grpojax.runtime import console, lock
from grpojax.types import Prompts


def prepare(config, data_dir: str | Path, common: Collection[str]) -> Path:
  """Returns the folder of the dataset that `config` (config.data) describes, built first where it is new.

  `common` are the keys of config.data that every task has; the others are the builder's settings.
  The folder's name is a hash of the builder's settings, its source and, where it has a function
  `source_files(settings)`, those files' contents.  One process at a time builds it, and the others take its
  folder, which appears by one rename, so that a killed process leaves no half of it.  Raises ValueError where
  its files are no longer what was written.
  """
  module, builder_class = _find_builder(config.task)
  settings = _builder_settings(config, builder_class, common)
  key = f"{checksums.NAME}{json.dumps(settings, sort_keys=True)}"
  digest = hashlib.sha256(key.encode() + _source(module))
  if hasattr(builder_class, "source_files"):
    digest.update(_contents(builder_class.source_files(settings)))
  name = f"{module.__name__.split('.')[-1]}-{digest.hexdigest()[:16]}"
  folder = Path(data_dir).expanduser() / name
  if not folder.is_dir():
    with lock.hold(folder.with_suffix(".lock"), f"dataset {folder}", wait=True):
      if not folder.is_dir():  # else another process was first
        console.say(f"preparing the dataset {name} in {folder.parent}")
        _build(builder_class, settings, folder)
  checksums.check(folder)
  return folder


def _build(builder_class, settings: dict[str, Any], folder: Path) -> None:
  """Builds a dataset beside its folder and renames it; the caller holds the folder's lock."""
  for left in folder.parent.glob(f".preparing-{folder.name}-*"):  # by a process that was killed
    shutil.rmtree(left)
  with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".preparing-{folder.name}-") as scratch:
    configs = builder_class.BUILDER_CONFIGS
    builder_config = type(configs[0])(name="grpojax", **settings) if configs else None
    tfds.disable_progress_bar()
    with contextlib.redirect_stdout(io.StringIO()):  # TFDS announces a download; there is none
      builder = builder_class(config=builder_config, data_dir=scratch, file_format="array_record")
      builder.download_and_prepare()
    checksums.write(Path(builder.data_dir))
    os.rename(builder.data_dir, folder)


def _find_builder(task: str):
  """Returns (module, builder) of 'mini_aime' (grpojax/data/mini_aime) or of 'my.module:MyBuilder'.

  A generator of reasoning-gym, as 'reasoning_gym:chain_sum', is a source of 'local'.
  """
  name, _, class_name = ("local" if task.startswith("reasoning_gym:") else task).partition(":")
  name = name if class_name else f"grpojax.data.{name}"
  try:
    module = importlib.import_module(name)
  except ModuleNotFoundError as error:
    if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
      raise  # the module is there, and something that it imports is not
    raise ValueError(
      f"config.data.task = '{task}', but there is no module {name}; write 'mini_aime', 'local',"
      " 'reasoning_gym:chain_sum' or 'my.module:MyBuilder'."
    ) from None
  builders = {
    key: value
    for key, value in vars(module).items()
    if inspect.isclass(value)
    and issubclass(value, tfds.core.DatasetBuilder)
    and value.__module__ == module.__name__
  }
  if not class_name and len(builders) == 1:
    (class_name,) = builders
  if class_name not in builders:
    raise ValueError(
      f"config.data.task = '{task}', but {name} has the builders {', '.join(builders) or 'none'};"
      " write one as 'module:Class'."
    )
  return module, builders[class_name]


def _builder_settings(config, builder_class, common: Collection[str]) -> dict[str, Any]:
  """Returns what config.data sets for the builder: its own keys, and of the `common` ones what it takes.

  Raises ValueError for a key that it does not take.
  """
  takes = []
  if builder_class.BUILDER_CONFIGS:
    inherited = {field.name for field in dataclasses.fields(tfds.core.BuilderConfig)}
    fields = dataclasses.fields(builder_class.BUILDER_CONFIGS[0])
    takes = [field.name for field in fields if field.name not in inherited]
  settings = {key: value for key, value in config.to_dict().items() if key in takes or key not in common}
  for key in settings:
    if key not in takes:
      raise ValueError(
        f"config.data.{key} is set, but {builder_class.__name__} takes"
        f" {', '.join(takes) or 'no settings'}; leave it out of the recipe's config.data."
      )
  return settings


def _source(module) -> bytes:
  path = Path(module.__file__)
  files = sorted(path.parent.glob("*.py")) if path.name == "__init__.py" else [path]
  return b"".join(file.read_bytes() for file in files)


def _contents(paths: list[Path]) -> bytes:
  """Returns the files' names and digests: the same on every host, whatever its clock and folders."""
  digests = []
  for path in paths:
    with path.open("rb") as file:
      digests.append(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
  return b"".join(digests)


class Split(NamedTuple):
  """A split in memory: its prompts, as text and as tokens."""

  name: str
  records: list[dict[str, Any]]  # rows of the dataset, bytes decoded
  prompts: list[np.ndarray]  # of int32, chat template included, each at most `budget` long
  ids: np.ndarray  # [rows] int32, the row's number in the dataset on disk
  budget: int  # L, in tokens
  dropped: int  # rows left out because their prompt is longer than the budget
  notes: tuple[str, ...] = ()  # sentences about the split at the start of a run
  weights: np.ndarray | None = None  # [rows] float32, how often each is drawn; None: all alike
  split_special_tokens: bool = True  # those that a row spells are text


def load_split(
  config,
  path: str | Path,
  split: str,
  tokenizer,
  needs: Callable[[dict], tuple[str, ...]] = lambda row: ("answer",),
  form: templates.Form = templates.PLAIN,
) -> Split:
  """Reads every row of `split` and encodes its prompt in `form`; never truncates one.

  `needs` returns the fields of a row that the rewards read.  Raises ValueError where a row cannot be read,
  where a field is missing or empty, and where config.data.overlong_prompts = "error" and one is too long.
  """
  records = _read(path, split)
  for row, record in enumerate(records):
    for field in ("question", *needs(record)):
      if not str(record.get(field, "")).strip():
        raise ValueError(f"Row {row} of split '{split}' has no '{field}'; mend the data in {path}.")
  return encode_split(config, split, records, tokenizer, form, _notes(path, split))


def encode_split(
  config, split: str, records: list[dict[str, Any]], tokenizer, form: templates.Form, notes: tuple[str, ...]
) -> Split:
  """Returns the rows as a split: prompts encoded in `form`, those over the budget dropped or refused."""
  prompts = templates.encode(form, tokenizer, records)
  fits = np.array([len(prompt) <= config.prompt_budget for prompt in prompts])
  if config.overlong_prompts == "error" and not fits.all():
    row = int(np.argmin(fits))
    raise ValueError(
      f"Row {row} of split '{split}' has a prompt of {len(prompts[row])} tokens; raise"
      f" config.data.prompt_budget = {config.prompt_budget} or set overlong_prompts = 'drop'."
    )
  if not fits.any():
    raise ValueError(
      f"config.data.prompt_budget = {config.prompt_budget} is less than every prompt of split"
      f" '{split}' has; raise it."
    )
  ids = np.flatnonzero(fits).astype(np.int32)
  return Split(
    name=split,
    records=[records[i] for i in ids],
    prompts=[prompts[i] for i in ids],
    ids=ids,
    budget=config.prompt_budget,
    dropped=int((~fits).sum()),
    notes=(*notes, *_note_of_special_tokens(form, tokenizer, records)),
    split_special_tokens=form.split_special_tokens,
  )


def _note_of_special_tokens(form: templates.Form, tokenizer, records: list[dict]) -> tuple[str, ...]:
  """Returns a sentence on the prompts that spell special tokens, if there are some."""
  n = templates.count_spelt(form, tokenizer, records)
  how = "as text" if form.split_special_tokens else "as those tokens"
  return (f"{n} prompts spell special tokens, encoded {how} (config.data.split_special_tokens)",) if n else ()


def weigh(split: Split, mixture) -> Split:
  """Returns the split with its sources drawn in the proportions of `mixture`, a source's rows alike.

  `mixture` is config.data.mixture: source -> weight; empty, every row is alike.  Raises ValueError where
  the mixture does not name the split's sources, or a weight is not positive.
  """
  if not mixture:
    return split
  rows = Counter(record.get("source") for record in split.records)
  if set(mixture) != set(rows):
    raise ValueError(
      f"config.data.mixture names {', '.join(map(str, mixture))}, but split '{split.name}' has rows of"
      f" {', '.join(map(str, rows))}; give each of these a weight."
    )
  for source, weight in mixture.items():
    if not isinstance(weight, Real) or not 0 < weight < np.inf:
      raise ValueError(f"config.data.mixture.{source} = {weight} must be a positive number.")
  weights = np.array([mixture[r["source"]] / rows[r["source"]] for r in split.records])
  return split._replace(weights=(weights / weights.sum()).astype(np.float32))


def graded(split: Split, has_verdict: Callable[[dict], bool]) -> Split:
  """Returns the rows that have a verdict, which alone are asked in evaluations; the others are in the notes.

  Raises ValueError where none has one.
  """
  on = np.array([has_verdict(record) for record in split.records], bool)
  if not on.any():
    raise ValueError(
      f"config.reward.accuracy.only leaves no row of split '{split.name}' a verdict; name another"
      " config.eval.split, or values that its rows have."
    )
  if on.all():
    return split
  note = f"{(~on).sum()} questions have no verdict and are not asked (config.reward.accuracy.only)"
  return select(split, np.flatnonzero(on))._replace(notes=(*split.notes, note))


def select(split: Split, rows: np.ndarray) -> Split:
  """Returns these rows of a split, which has no weights yet."""
  records, prompts = ([column[row] for row in rows] for column in (split.records, split.prompts))
  return split._replace(records=records, prompts=prompts, ids=split.ids[rows])


def fingerprint(split: Split) -> str:
  """Returns the number of rows, and a hash of the rows as they are asked."""
  digest = hashlib.sha256(split.ids.tobytes())
  for record, prompt in zip(split.records, split.prompts, strict=True):
    digest.update(json.dumps(record, sort_keys=True, default=str).encode() + prompt.tobytes())
  return f"{len(split.records)} rows ({digest.hexdigest()[:12]})"


def _notes(path: str | Path, split: str) -> tuple[str, ...]:
  """Returns the sentences that the builder wrote into its `metadata` under notes -> split."""
  metadata = tfds.builder_from_directory(str(path)).info.metadata or {}
  return tuple(metadata.get("notes", {}).get(split, ()))


def splits(path: str | Path) -> list[str]:
  """Returns the names of the splits that the dataset in this folder has."""
  return list(tfds.builder_from_directory(str(path)).info.splits)


def _read(path: str | Path, split: str) -> list[dict[str, Any]]:
  if split not in splits(path):
    raise ValueError(
      f"config.data has no rows for split '{split}', only for {', '.join(splits(path))}; name files for"
      " it, or another split."
    )
  source = tfds.builder_from_directory(str(path)).as_data_source(split)
  records = []
  for row in range(len(source)):
    try:
      record = {k: v.decode() if isinstance(v, bytes) else v for k, v in source[row].items()}
    except Exception as error:
      raise ValueError(
        f"Row {row} of split '{split}' cannot be read ({error}); delete {path} and start again."
      ) from error
    records.append(record)
  return records


def left_pad(rows: list[np.ndarray], width: int, pad: int) -> np.ndarray:
  """Returns [rows, width] int32; the last len(row) columns are the row."""
  padded = np.full((len(rows), width), pad, np.int32)
  for i, row in enumerate(rows):
    padded[i, width - len(row) :] = row
  return padded


def epoch_order(rows: int, batch: int, seed: int):
  """Returns a map from batch number to indices [batch]: a fresh shuffle every epoch, no row twice in one.

  The rows % batch remaining rows wait for the next epoch's order, so that no batch has a row twice.
  """
  epoch = grain.MapDataset.range(rows).seed(seed).shuffle().batch(batch, drop_remainder=True)
  return epoch.repeat()


def _draw(weights: np.ndarray, batch: int, seed: int, number: int) -> np.ndarray:
  """Draws indices [batch], none twice, in proportion to `weights` [rows]; keyed by (seed, number) alone.

  The largest log weights with Gumbel noise are a draw without replacement.
  """
  noise = np.random.default_rng((seed, number)).gumbel(size=len(weights))
  return np.argsort(-(np.log(weights) + noise), kind="stable")[:batch]


class Stream:
  """Batches of P prompts for ever.  The state is one integer, the number of the next batch.

  Every process reads its own contiguous P / process_count of the same global batch.
  """

  def __init__(self, split, tokenizer, prompts, seed, process_index=0, process_count=1):
    if prompts > len(split.records):
      raise ValueError(
        f"config.rollout.prompts = {prompts} is more than the {len(split.records)} rows of split"
        f" '{split.name}'; lower it."
      )
    if prompts % process_count:
      raise ValueError(
        f"config.rollout.prompts = {prompts} must be a multiple of the {process_count} processes."
      )
    share = prompts // process_count
    self.position = 0
    self._mine = slice(process_index * share, (process_index + 1) * share)
    self._order = epoch_order(len(split.records), prompts, seed)
    self._draw = functools.partial(_draw, batch=prompts, seed=seed)
    self._split = split
    self._pad = tokenizer.pad_token_id

  def __getitem__(self, number: int) -> Prompts:
    return take(self._split, self._order[number][self._mine], self._pad)

  def next(self, weights: np.ndarray | None = None) -> Prompts:
    """Returns the next batch: of the epoch's order, or drawn by `weights` [rows], equal on all processes."""
    number, self.position = self.position, self.position + 1
    if weights is None:
      return self[number]
    return take(self._split, self._draw(weights, number=number)[self._mine], self._pad)

  def rewind(self, batches: int) -> None:
    """Gives the last so many batches back: they will be the next ones again."""
    self.position -= batches

  def get_state(self) -> dict[str, int]:
    return {"position": self.position}

  def set_state(self, state: dict[str, int]):
    self.position = int(state["position"])


def take(split: Split, indices: np.ndarray, pad: int) -> Prompts:
  """Returns the prompts at these indices of the split."""
  rows = [split.prompts[i] for i in indices]
  return Prompts(
    tokens=left_pad(rows, split.budget, pad),
    length=np.array([len(row) for row in rows], np.int32),
    id=split.ids[indices],
    example=[split.records[i] for i in indices],
  )
