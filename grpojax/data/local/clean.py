"""One row a question: repeats, contradictions and questions of the test split, found and counted."""

import dataclasses
import hashlib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from operator import itemgetter

_REASON = 200  # characters; libraries quote what they could not read
_LOCATIONS = 100  # malformed rows of a source whose locations are kept


@dataclasses.dataclass
class Counts:
  """Fate of the rows of one source, counted; the other numbers add up to `rows`."""

  rows: int = 0
  malformed: int = 0
  repeats: int = 0  # with the question of an earlier row of the split
  contradicting: int = 0  # with one question and different answers: none is kept
  in_test: int = 0  # with a question of the test split
  kept: int = 0
  locations: list[str] = dataclasses.field(default_factory=list)  # "train.jsonl:17: no answer"

  def note_malformed(self, location: str):
    self.malformed += 1
    if len(self.locations) < _LOCATIONS:
      self.locations.append(location)

  def sentence(self, name: str) -> str:
    """Returns the sentence about the source at the start of a run."""
    first = f" (the first is {self.locations[0]})" if self.locations else ""
    reasons = {
      f"malformed{first}": self.malformed,
      "repeat a question": self.repeats,
      "disagree about an answer": self.contradicting,
      "ask what the test split asks": self.in_test,
    }
    left_out = ", ".join(f"{count} {reason}" for reason, count in reasons.items() if count)
    return f"{name}: {self.kept} of {self.rows} rows" + (f"; left out: {left_out}" if left_out else "")


def reason(error: Exception) -> str:
  """Returns what is wrong with a row or a file, in a line."""
  message = " ".join(str(error).split())
  text = message if isinstance(error, ValueError) and message else f"{type(error).__name__}: {message}"
  return text if len(text) <= _REASON else f"{text[:_REASON]}..."


def question_hash(question: str, history: str) -> str:
  """Returns a hash of the question; spaces and Unicode composition do not change it."""
  words = unicodedata.normalize("NFC", f"{history} {question}").split()
  return hashlib.sha256(" ".join(words).encode()).hexdigest()[:24]


def folded_hash(example: dict[str, str]) -> str:
  """Returns a hash of a row's question that case does not change either: two of them may be one question.

  Where a letter is what is asked about they are two, so that this decides only what is not trained on.
  """
  return question_hash(example["question"].casefold(), example["history"].casefold())


def deduplicate(examples: Iterable[dict[str, str]], counts: Counts) -> list[dict[str, str]]:
  """Returns the first row of each question (by `uid`, its hash), of the rows of one source.

  Rows with one question and different answers are all left out.  Answers are compared within a source
  only, because two files may write one answer in two ways.
  """
  first, copies, disputed = {}, Counter(), set()
  for example in examples:
    uid = example["uid"]
    copies[uid] += 1
    if _answer(first.setdefault(uid, example)) != _answer(example):
      disputed.add(uid)
  counts.contradicting = sum(copies[uid] for uid in disputed)
  counts.repeats = sum(copies[uid] - 1 for uid in first if uid not in disputed)
  return [example for uid, example in first.items() if uid not in disputed]


def exclude(
  examples: list[dict[str, str]], seen: set[str], key: Callable[[dict], str] = itemgetter("uid")
) -> tuple[list[dict[str, str]], int]:
  """Returns the rows whose `key` is not in `seen`, and how many rows were left out."""
  kept = [example for example in examples if key(example) not in seen]
  return kept, len(examples) - len(kept)


def _answer(example: dict[str, str]) -> str:
  return "".join(example["answer"].split())
