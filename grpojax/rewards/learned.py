"""Learned rewards: scores of completions, and of their steps, by a local classifier of transformers.

A reward model is a model of its own: it reads the conversation as text, through its own chat template and
tokenizer.  Its parameters and rows are sharded over the devices of this process.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from grpojax import models
from grpojax.data import special_tokens, templates, text
from grpojax.models import hf
from grpojax.runtime import sharding

SHORTEST = 64  # columns; rows are padded to this times a power of two, so that few programs are compiled
SEQUENCE, TOKEN = "SequenceClassification", "TokenClassification"


class Classifier(NamedTuple):
  tokenizer: Any
  mesh: Mesh
  params: dict
  scores: Callable  # (params, tokens [B, S], first [B]) -> [B, S, labels] float32


def score(samples, *, path: str, label: int = -1, batch: int = 16, max_tokens: int = 4096, dtype="float32"):
  """Returns one number per completion, from a sequence classifier: its score at the last token.

  The score is the logit of one label, or the probability of `label` (the last by default) of several.
  `batch` rows of at most `max_tokens` are scored at once; a longer conversation has no score, and fails.
  """
  model = load(path, SEQUENCE, dtype)
  rows = [tuple(encode(model.tokenizer, sample, sample.text)["input_ids"]) for sample in samples]
  found = run(model, rows, batch, max_tokens)
  return [x if isinstance(x, Exception) else float(worth(x[-1], label)) for x in found]


def steps(
  samples, *, path: str, separator: str = "\n", label: int = -1, batch: int = 16, max_tokens: int = 4096,
  dtype: str = "float32",
):  # fmt: skip
  """Returns (score, end in characters) of each completion's steps, from a token classifier.

  Steps end at `separator`, which also closes the last one; a step's score is read at the token which
  completes its separator.  Steps without text do not count.
  """
  model = load(path, TOKEN, dtype)
  rows, steps_of = [], []
  for sample in samples:
    ends = step_ends(sample.text, separator)
    marked = sample.text[: ends[-1]] + separator if ends else ""
    encoded = encode(model.tokenizer, sample, marked)
    rows.append(tuple(encoded["input_ids"]))
    steps_of.append(list(zip(ends, closing(encoded, marked, ends, separator), strict=True)))
  found = run(model, rows, batch, max_tokens)
  return [
    x if isinstance(x, Exception) else [(float(worth(x[at], label)), end) for end, at in of_sample]
    for x, of_sample in zip(found, steps_of, strict=True)
  ]


def check(task: str, *, path: str, label: int, batch: int, max_tokens: int, dtype: str) -> None:
  """Raises ValueError, before anything is loaded, if the folder is not for `task` or a knob is illegal."""
  spec = models.scores_from_folder(Path(path).expanduser(), task, dtype)
  if not -spec.labels <= label < spec.labels:
    raise ValueError(f"label = {label}, but {path} has {spec.labels}.")
  for name, value in ("batch", batch), ("max_tokens", max_tokens):
    if value < 1:
      raise ValueError(f"{name} = {value} must be at least 1.")
  if text.load_tokenizer(Path(path).expanduser()).chat_template is None:
    raise ValueError(f"the tokenizer in {path} has no chat template; add the one that it was trained with.")


score.check = functools.partial(check, SEQUENCE)


def _check_steps(*, separator: str, **knobs) -> None:
  if not separator:
    raise ValueError("separator = '' ends no step; set it to what stands between two, such as '\\n'.")
  check(TOKEN, **knobs)


steps.check = _check_steps


@functools.cache
def load(path: str, task: str, dtype: str) -> Classifier:
  """Loads the folder onto this process's devices, once."""
  folder = Path(path).expanduser()
  labels = lambda decoder, tokens, first: decoder.scores(decoder(tokens, first))
  return on_devices(folder, models.scores_from_folder(folder, task, dtype), labels)


def on_devices(folder: Path, spec: models.Spec, labels: Callable) -> Classifier:
  """Loads a model onto this process's devices; `labels` is (decoder, tokens, first) -> [B, S, labels]."""
  devices = np.array(jax.local_devices()).reshape(1, -1, 1, 1)
  mesh = Mesh(devices, ("data", "fsdp", "tensor", "expert"), axis_types=(AxisType.Auto,) * 4)
  model = models.from_spec(spec, mesh)
  where = sharding.param_shardings(mesh, model.axes, model.shapes, model.rules)
  rows = sharding.batch_sharding(mesh)
  scores = lambda params, tokens, first: labels(model.bind(params), tokens, first)
  scores = jax.jit(scores, in_shardings=(where, rows, rows), out_shardings=rows)
  return Classifier(text.load_tokenizer(folder), mesh, hf.load(folder, model, mesh), scores)


def encode(tokenizer, sample, completion: str):
  """Encodes the conversation in the model's own template: input_ids, offset_mapping, and `text` itself."""
  chat = [*templates.to_chat(templates.PLAIN, sample.example), dict(role="assistant", content=completion)]
  if special_tokens.spells_any(tokenizer, [message["content"] for message in chat]):  # they stay text
    covered, hidden = special_tokens.hide(tokenizer, chat)
    return special_tokens.encode(tokenizer, tokenizer.apply_chat_template(covered, tokenize=False), hidden)
  whole = tokenizer.apply_chat_template(chat, tokenize=False)
  encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
  return dict(encoded) | {"text": whole}


def step_ends(completion: str, separator: str) -> list[int]:
  """Returns the end of each step, in characters, its separator not included."""
  ends, start = [], 0
  for step in completion.split(separator):
    if step.strip():
      ends.append(start + len(step))
    start += len(step) + len(separator)
  return ends


def closing(encoded, marked: str, ends: list[int], separator: str) -> list[int]:
  """Returns the token that completes each step's separator.  Templates may strip the outermost."""
  body = marked if marked in encoded["text"] else marked.strip()
  shift = encoded["text"].rindex(body) - marked.index(body)
  final = encoded["text"].rindex(body) + len(body)
  starts = np.array([start for start, _ in encoded["offset_mapping"]])
  characters = [min(shift + end + len(separator), final) - 1 for end in ends]
  return [int(np.searchsorted(starts, c, side="right")) - 1 for c in characters]


def run(model: Classifier, rows: list[tuple[int, ...]], batch: int, max_tokens: int) -> list:
  """Returns scores [len(row), labels] of each row, or a ValueError for a row that is too long.

  Rows are sorted by length and padded on the left; each batch is a multiple of the devices.
  """
  found = [ValueError(f"{len(row)} tokens are over max_tokens = {max_tokens}") for row in rows]
  fits = sorted((i for i, row in enumerate(rows) if len(row) <= max_tokens), key=lambda i: len(rows[i]))
  B = -(-batch // model.mesh.size) * model.mesh.size
  rows_of = sharding.batch_sharding(model.mesh)
  for start in range(0, len(fits), B):
    members = fits[start : start + B]
    S = SHORTEST
    while len(rows[members[-1]]) > S:
      S *= 2
    tokens, first = np.zeros((B, S), np.int32), np.zeros(B, np.int32)
    for row, i in enumerate(members):
      first[row] = S - len(rows[i])
      tokens[row, first[row] :] = rows[i]
    out = np.asarray(model.scores(model.params, *jax.device_put((tokens, first), rows_of)))
    for row, i in enumerate(members):
      found[i] = out[row, first[row] :]
  return found


def worth(logits: np.ndarray, label: int) -> np.ndarray:
  """Returns the logit of the only one of logits [labels], or the probability of one of several."""
  if len(logits) == 1:
    return logits[0]
  odds = np.exp(logits - logits.max())
  return odds[label] / odds.sum()
