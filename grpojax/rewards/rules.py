"""Verdicts by a rule: on the marked answer, and on every step on the way."""

import operator
import re

# A minus may be the hyphen or U+2212, "1,234" is a number, "72.0" is the integer 72.
_NUMBER = re.compile(r"([-+\u2212]?)((?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+))(?:\.0*)?")
_END = re.compile(r"[.,;:!?]*(?:[\s)\]}$*\"']|</|$)")  # may follow: "72." and "72)", not "72-8"


def extract(text: str, marker: str) -> str | None:
  """Returns the integer behind the last `marker`, without leading zeros: "...#072." -> "72".

  The last marker counts: None if no integer stands behind it, whatever stood behind earlier ones.
  Also None if the number goes on as something else ("#72.5", "#72-8", "#72x").  A number that the
  response budget cut in the middle cannot be told from a whole one.
  """
  _, found, tail = text.rpartition(marker)
  return _leading_integer(tail) if found else None


def _leading_integer(text: str) -> str | None:
  text = text.lstrip().removeprefix("$").lstrip()  # a pattern for it takes quadratic time on spaces
  match = _NUMBER.match(text)
  if not match or not _END.match(text, match.end()):
    return None
  sign, digits = match.groups()
  digits = digits.replace(",", "").lstrip("0") or "0"
  return f"-{digits}" if sign in ("-", "\u2212") and digits != "0" else digits


def integer_answer(sample, *, marker: str) -> float | None:
  """Returns 1 if the integer behind the last `marker` is the row's answer, else 0; None without a truth.

  Integers are compared as strings of digits, so that no length of number is an error.
  """
  truth = _leading_integer(str(sample.example["answer"]))
  if truth is None:
    return None
  return float(extract(sample.text, marker) == truth)


def marked_line(sample, *, marker: str) -> float:
  """Returns 1 if the text ends in a line of the marker and an integer, and has no other marker; else 0."""
  head, found, tail = sample.text.rpartition(marker)
  alone = bool(found) and marker not in head and (not head or head.endswith("\n"))
  return float(alone and _NUMBER.fullmatch(tail.strip()) is not None)


def _check_marker(*, marker):
  if not isinstance(marker, str) or not marker:
    raise ValueError(f"marker = {marker!r} must be a text, such as '#'.")


integer_answer.needs = ("answer",)
integer_answer.check = _check_marker
marked_line.check = _check_marker
integer_answer.answer = extract

_STEP = re.compile(r"(?<![0-9.=])([0-9]{1,9})([-+*])([0-9]{1,9})=([0-9]{1,9})(?![0-9.])")
_APPLY = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def arithmetic_steps(text: str) -> list[tuple[float, int]]:
  """Verifies steps: returns every "a+b=c" in the text as (1 if it is true, else 0; where it ends)."""
  return [
    (float(_APPLY[sign](int(left), int(right)) == int(result)), match.end())
    for match in _STEP.finditer(text)
    for left, sign, right, result in [match.groups()]
  ]
