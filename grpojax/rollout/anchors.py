"""Anchors: which turns of different trajectories faced the same situation?

GiGPO's anchor (https://arxiv.org/abs/2505.10978) is the observation before the turn.  ESSA's is a
fingerprint of the validator's last answer, so that the same kind of error is the same situation
wherever it happened.  An anchor is any hashable value; the objective compares numbers.
"""

import re
from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher

import numpy as np

_FORGET = (
  (r"'[^']*'", "'<X>'"),
  (r"`[^`]*`", "`<X>`"),
  (r'"[^"]*"', '"<X>"'),
  (r"\b\d+\b", "<N>"),
  (r"\s+", " "),
)


def canonical(message: str) -> str:
  """Returns an error message without the names and numbers that differ from case to case."""
  message = message.strip()
  for pattern, word in _FORGET:
    message = re.sub(pattern, word, message)
  return message


def error_anchor(verb: str, message: str) -> tuple[str, str, str]:
  """Returns the anchor after the tool `verb` was refused with `message`.

  Other answers have anchors of the same form: ("ok", verb), ("read", verb, argument), ("invalid",).
  Which verbs read and which write is the environment's to say.
  """
  return ("write", verb, canonical(message) or "unknown")


def ids(anchors: Sequence[Hashable]) -> np.ndarray:
  """Returns [rows] int32, equal for equal anchors; give one group each, so that prompts stay apart."""
  seen = {anchor: number for number, anchor in enumerate(dict.fromkeys(anchors))}
  return np.array([seen[anchor] for anchor in anchors], np.int32)


def fuzzy_ids(observations: Sequence[str], threshold: float = 0.95) -> np.ndarray:
  """Returns [rows] int32: each joins the first anchor that it resembles, or founds a new one.

  An anchor is the observation that founded it, so the order of rows matters.  Resemblance is
  difflib's ratio of (observation, founder), 2 · matches / total length, and 0.95 verl-agent's bound.
  """
  founders: list[SequenceMatcher] = []  # each has analysed its founder once, for all that follow
  numbers = []
  for observation in observations:
    number = next((n for n, f in enumerate(founders) if _resembles(observation, f, threshold)), len(founders))
    if number == len(founders):
      founders.append(SequenceMatcher(None, b=observation))
    numbers.append(number)
  return np.array(numbers, np.int32)


def _resembles(observation: str, founder: SequenceMatcher, threshold: float) -> bool:
  founder.set_seq1(observation)
  measures = (founder.real_quick_ratio, founder.quick_ratio, founder.ratio)  # cheap upper bounds first
  return all(measure() >= threshold for measure in measures)
