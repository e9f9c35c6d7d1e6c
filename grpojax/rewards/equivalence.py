"""Equivalence of two answers in mathematics.  Runs in a worker process only: it may hang or eat memory.

math-verify (https://github.com/huggingface/Math-Verify) reads LaTeX and compares.  Its own time limits
are signal alarms, which do not work in a thread; they are off, and the pool kills instead.
Where math-verify is more lenient than a reward should be, this file refuses:
  an equation of numbers, such as 2=3, is no answer (math-verify takes the right-hand side)
  a pair or interval is not a set, a bare list is a set: (1,2) is neither {1,2} nor 2,1
  a word is its letters in order, not their product: "silent" is not "listen"
  numerals in two different bases differ
What stays lenient: a percent sign, unit, or base may be left out; decimals agree at 6 places.
Answers that math-verify cannot compare, or not within a worker's memory, are not equal.
"""

import functools
import logging
import re

from antlr4 import PredictionMode
from latex2sympy2_extended import latex2sympy2
from math_verify import LatexExtractionConfig, parse
from math_verify import verify as same
from sympy import Eq, FiniteSet, Interval, Tuple


class _TwoStage(latex2sympy2.PSParser):
  """A parser with SLL prediction, then full LL where SLL fails, as ANTLR advises: several times faster."""

  def math(self):
    self._interp.predictionMode = PredictionMode.SLL
    try:
      return super().math()
    except Exception:
      self.reset()
      self._interp.predictionMode = PredictionMode.LL
      return super().math()


latex2sympy2.PSParser = _TwoStage
logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # says on every call that alarms are off

_CONFIG = [LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)]
_MIXED = re.compile(r"(?<![\d.])(\d+)\s+(\d+)/(\d+)")  # 3 1/2, which would be read as 31/2 or 3*1/2
_WORD = re.compile(r"(?:\\(?:text|mathrm|textbf)\{)?\(?([A-Za-z][A-Za-z '-]{2,})\)?\}?")
_BASE = re.compile(r"\d_\{?(\d+)\}?$")
_ARITHMETIC = re.compile(r"(?:\\(?:[dt]?frac|sqrt|cdot|times|div|left|right)|[\d\s.,+*/^(){}!-])+")


def verdict(gold: str, answer: str | None) -> float | None:
  """Returns 1 if `answer` is `gold`, else 0; None if the gold answer cannot be read."""
  truth = _read(gold)
  if not truth:
    return None
  if not answer or _is_equation_of_numbers(answer):
    return 0.0
  if answer == gold:
    return 1.0
  if word := _WORD.fullmatch(gold):
    answered = _WORD.fullmatch(answer)
    return float(answered is not None and answered.group(1).lower() == word.group(1).lower())
  bases = _BASE.findall(gold) + _BASE.findall(answer)
  if len(set(bases)) > 1:
    return 0.0
  guess = _read(answer)
  if not guess or _ordered(truth[0]) != _ordered(guess[0]):
    return 0.0
  return float(same(truth, guess, timeout_seconds=None))


@functools.lru_cache(maxsize=1024)
def _read(text: str) -> list:
  """Returns math-verify's reading; [] if there is none."""
  text = _MIXED.sub(r"\1\\frac{\2}{\3}", text)
  box = f"\\boxed{{{text}}}"
  return parse(box, extraction_config=_CONFIG, fallback_mode="no_fallback", parsing_timeout=None)


def _ordered(value) -> bool | None:
  """Returns True for pairs and intervals, False for sets of several, None for what has one element."""
  value = value.rhs if isinstance(value, Eq) else value
  if isinstance(value, Tuple | Interval | tuple):
    return True
  return False if isinstance(value, FiniteSet) and len(value) > 1 else None


def _is_equation_of_numbers(answer: str) -> bool:
  left, equals, _ = answer.partition("=")
  return bool(equals) and _ARITHMETIC.fullmatch(left) is not None
