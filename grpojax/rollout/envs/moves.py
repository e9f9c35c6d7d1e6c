"""Moves: which of an environment's actions a text names."""

import random
import re
from collections.abc import Sequence


def read(text: str, words: Sequence[str]) -> str | None:
  """Returns the action that a text is the first letter of, or the last one that it names; None if none.

  No two of `words` begin with the same letter.
  """
  text = text.strip().lower()
  if len(text) == 1:
    return next((word for word in words if word[0] == text), None)
  named = re.findall(rf"\b(?:{'|'.join(words)})\b", text)
  return named[-1] if named else None


def refusal(words: Sequence[str]) -> str:
  """Returns what an environment says to a text that names no action."""
  return f"say {', '.join(words)}"


def err(rng: random.Random, wrong: float, best: Sequence[str], words: Sequence[str]) -> str:
  """Returns one of the `best` actions; in a share `wrong` of the calls, any of all, drawn at random."""
  return rng.choice(list(words if rng.random() < wrong else best))
