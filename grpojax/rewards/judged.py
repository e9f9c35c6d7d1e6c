"""A language model as the judge of completions: a rubric around question and answer, and the expected score.

The rubric is a prompt of the judge's own chat template, behind which its answer has begun with the marker.
The score is the mean of the integers 0..most by the odds that the judge gives them there: what the mean of
ever more judgements of the form `marker number` comes to (G-Eval, https://arxiv.org/abs/2303.16634, section
2).  So it is a reward of every completion, for advantages of a group; pairs by sampled judgements are those
of tools/pipeline/judge.py.
"""

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from grpojax import models
from grpojax.data import messages, text
from grpojax.rewards import learned
from grpojax.rewards.learned import Classifier

PLACES = "{question}", "{answer}"
INIT = "init"  # path of the policy that a run starts from, as config.reference has it


class Form(NamedTuple):
  """Form of a judgement, in the judge's tokens."""

  begun: tuple[int, ...]  # the answer up to the number
  numbers: tuple[int, ...]  # the token of each, 0..most


def score(
  samples, *, path: str, rubric: str, marker: str = "Score:", most: int = 5, batch: int = 16,
  max_tokens: int = 4096, dtype: str = "float32",
):  # fmt: skip
  """Returns the expected score of each completion, as a share of `most`.

  `path` is the judge's folder, or "init": the policy that the run starts from.  A rubric of more than
  `max_tokens` has no score, and fails.
  """
  judge, form = load(path, marker, most, dtype)
  chats = [[dict(role="user", content=ask(rubric, one.example, one.text))] for one in samples]
  rows = [(*prompt.tolist(), *form.begun) for prompt in text.encode_chats(judge.tokenizer, chats)]
  found = learned.run(judge, rows, batch, max_tokens)
  return [x if isinstance(x, Exception) else expected(x[-1]) for x in found]


def check(*, path: str, rubric: str, marker: str, most: int, batch: int, max_tokens: int, dtype: str) -> None:
  """Raises ValueError for a rubric without its two places, for no marker, and for a folder that is none."""
  check_form(rubric, marker)
  for name, value in ("most", most), ("batch", batch), ("max_tokens", max_tokens):
    if value < 1:
      raise ValueError(f"{name} = {value} must be at least 1.")
  if path != INIT:
    form_of(text.load_tokenizer(Path(path).expanduser()), marker, most)


score.check = check


def check_form(rubric: str, marker: str, section: str = "") -> None:
  """Raises ValueError for a rubric without its two places, or no marker; `section` is where both are keys."""
  if not all(rubric.count(place) == 1 for place in PLACES):
    raise ValueError(f"{section}rubric needs {{question}} and {{answer}} in it, once each.")
  if not marker.strip():
    raise ValueError(f"{section}marker is empty; set the text that the score stands behind: 'Score:'.")


def ask(rubric: str, record: dict, answer: str) -> str:
  """Returns the rubric of a question and an answer, as the judge reads it."""
  question = "\n\n".join(message["content"] for message in messages.to_prompt(record))
  before, _, behind = rubric.partition("{answer}")  # both texts may have braces of their own
  fill = lambda part: part.replace("{question}", question)
  return f"{fill(before)}{answer}{fill(behind)}"


def verdict(marker: str, number: int) -> str:
  """Returns a judgement in its form."""
  return f"{marker.rstrip()} {number}"


def form_of(tokenizer, marker: str, most: int) -> Form:
  """Returns the form in tokens.  Raises ValueError where a number is not one token behind the marker."""
  written = [text.encode(tokenizer, verdict(marker, number)) for number in range(most + 1)]
  begun = {ids[:-1] for ids in written}
  if len(begun) > 1:
    raise ValueError(f"the numbers 0..{most} are not one token each behind '{marker}'; lower most.")
  return Form(begun.pop(), tuple(ids[-1] for ids in written))


def expected(logits: np.ndarray) -> float:
  """Returns the mean of 0..most by the odds of logits [most + 1], as a share of most."""
  odds = np.exp(logits - logits.max())
  return float(odds @ np.arange(len(logits)) / odds.sum() / (len(logits) - 1))


@functools.cache
def load(path: str, marker: str, most: int, dtype: str) -> tuple[Classifier, Form]:
  """Loads the judge onto this process's devices, once: its labels are the numbers' logits."""
  folder = Path(path).expanduser()
  tokenizer = text.load_tokenizer(folder)
  form = form_of(tokenizer, marker, most)

  def numbers(decoder, tokens, first):
    head = decoder.unembedding()[np.array(form.numbers)]
    return models.logits(decoder(tokens, first), head, decoder.spec.logit_softcap)

  return learned.on_devices(folder, models.from_folder(folder, dtype, dtype), numbers), form
