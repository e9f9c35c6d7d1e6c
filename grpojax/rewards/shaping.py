"""Rewards beside right or wrong: length, form, language, and the quality of single steps."""

import functools
import importlib
import inspect
import itertools
import math
import re
import unicodedata


def soft_overlong(sample, *, max_tokens: int, cache: int) -> float:
  """Returns 0 up to max_tokens - cache tokens, then linearly down to -1 at max_tokens and beyond.

  DAPO, https://arxiv.org/abs/2503.14476, equation 13.  Lengths are in tokens, never in characters.
  """
  beyond = sample.length - (max_tokens - cache)
  return max(-1.0, min(0.0, -beyond / cache))


def _check_soft_overlong(*, max_tokens, cache):
  if not 0 < cache <= max_tokens:
    raise ValueError(f"cache = {cache} must be in 1..max_tokens = {max_tokens}.")


soft_overlong.check = _check_soft_overlong


def group_relative_overlong(group, accuracy, *, easy: float) -> list[float]:
  """Returns 0 for wrong answers, and down to -1/2 for right answers that are long for their group.

  GTPO, https://arxiv.org/abs/2508.04349, appendix D.  A right answer of n tokens costs
  (n - L) / 2L from n = L on, and 1/2 from n = 2L on.  L is max(midrange, mean) of the lengths: of
  the right answers in an easy group (share right >= `easy`), of all in a medium one (more right
  than wrong); other groups cost nothing.  The paper does not publish `easy` (its gamma_1).
  """
  right = [value > 0 for value in accuracy]
  share = sum(right) / len(right)
  if share >= easy:
    lengths = [sample.length for sample, is_right in zip(group, right, strict=True) if is_right]
  elif share > 0.5:
    lengths = [sample.length for sample in group]
  else:
    return [0.0] * len(group)
  limit = max((min(lengths) + max(lengths)) / 2, sum(lengths) / len(lengths))
  return [
    -0.5 * min(1.0, max(0.0, (sample.length - limit) / limit)) if is_right else 0.0
    for sample, is_right in zip(group, right, strict=True)
  ]


def _check_easy(*, easy):
  if not 0.5 < easy <= 1:
    raise ValueError(f"easy = {easy} is the share of right answers in an easy group, in 0.5..1.")


group_relative_overlong.check = _check_easy

_BLOCK = r"((?:(?!</?think>|</?answer>).)*)"  # anything but another mark
_R1_FORM = re.compile(rf"\s*<think>{_BLOCK}</think>\s*<answer>{_BLOCK}</answer>\s*", re.DOTALL)
_THOUGHT = re.compile(r"<think>(.*?)(?:</think>|$)", re.DOTALL)


def r1_format(sample) -> float:
  """Returns 1 for one <think> block, then one <answer> block, and only white space beside them; else 0.

  R1-Zero, https://arxiv.org/abs/2501.12948, section 2.2.
  """
  return float(_R1_FORM.fullmatch(sample.text) is not None)


def language_consistency(sample, *, script: str = "LATIN") -> float:
  """Returns the share of the words of the thought that are written in `script`; 0 without any word.

  R1, https://arxiv.org/abs/2501.12948, section 2.3.2.  The thought is the <think> block, or the whole
  text without one.  `script` begins the Unicode names of its letters: LATIN, CJK, CYRILLIC.
  """
  thought = _THOUGHT.search(sample.text)
  words = _words(thought.group(1) if thought else sample.text)
  return sum(_script(word[0]).startswith(script) for word in words) / len(words) if words else 0.0


def _words(text: str) -> list[str]:
  """Returns runs of letters of one script; in scripts without spaces, every letter is a word."""
  words = []
  for script, letters in itertools.groupby(text, lambda x: _script(x) if x.isalpha() else ""):
    if script in ("CJK", "HIRAGANA", "KATAKANA", "THAI"):
      words.extend(letters)
    elif script:
      words.append("".join(letters))
  return words


def _script(letter: str) -> str:
  return unicodedata.name(letter, "?").split()[0]


_AGGREGATES = {
  "mean": lambda scores: sum(scores) / len(scores),
  "last": lambda scores: scores[-1],
  "min": min,
  "product": math.prod,
}


def aggregate_steps(scores: list[float], *, how: str) -> float:
  """Returns one number for the scores of the steps: their mean, the last, the worst, or the product."""
  return float(_AGGREGATES[how](scores))


def process(samples, *, scorer: str, how: str = "min", knobs=None) -> list:
  """Scores the steps of each completion with `scorer` and returns one number; 0 if there is no step.

  `scorer` is that of `load_scorer`: a process reward model such as 'grpojax.rewards.learned:steps', whose
  folder is among its `knobs`, or a rule such as 'grpojax.rewards.rules:arithmetic_steps'.
  """

  def one(steps):
    if isinstance(steps, Exception):
      return steps
    return aggregate_steps([score for score, _ in steps], how=how) if steps else 0.0

  return [one(steps) for steps in load_scorer(scorer, knobs)(samples)]


def load_scorer(path: str, knobs=None):
  """Returns samples -> each one's steps [(score in 0..1, end in characters)] or an Exception.

  `path` is 'module:function'.  The function takes the `text` of one completion or, by the name of its
  first parameter, all `samples`;
  `knobs` are its keyword arguments.  Raises ValueError where there is no such function.
  """
  module, _, name = path.partition(":")
  try:
    fn = getattr(importlib.import_module(module), name)
    bound = inspect.signature(fn).bind(None, **dict(knobs or {}))
    bound.apply_defaults()
  except (ImportError, AttributeError, ValueError, TypeError) as error:
    raise ValueError(f"scorer = '{path}' must be 'module:function' ({error}).") from None
  if hasattr(fn, "check"):
    fn.check(**bound.kwargs)
  fn_of = functools.partial(fn, **bound.kwargs)
  if next(iter(bound.arguments)) == "samples":
    return fn_of
  return lambda samples: [_attempt(fn_of, sample.text) for sample in samples]


def _attempt(fn, text: str):
  try:
    return fn(text)
  except Exception as error:  # costs this completion its steps, not the others theirs
    return error


def _check_process(*, scorer, how, knobs):
  if how not in _AGGREGATES:
    raise ValueError(f"how = '{how}', but it is one of {', '.join(_AGGREGATES)}.")
  load_scorer(scorer, knobs)


process.check = _check_process
