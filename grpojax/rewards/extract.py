"""Extraction of a completion's answer: a box, a last line, a marker, a tag, or a fenced program.

Only the last answer counts: a completion cannot answer twice.  A thought is no answer, and neither is a box
or a fence that is not closed.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?:\{|([-+]?[0-9](?:[0-9.,]*[0-9])?))")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # \{ and \} are set brackets, not TeX's own braces
_TAG = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
_LINE = re.compile(r"[*_\s]*answer[*_\s]*:(.*)", re.IGNORECASE)
_WORD = re.compile(r"[\w+-]*")
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
_DECIMAL = rf"{_DIGITS}(?:\.[0-9]*)?|\.[0-9]+"
_EXPONENT = "[-+]?[0-9]{1,3}"
_NUMBER = re.compile(  # 72, 1.6e-19, 1.6 \times 10^{-19}, 10^{-7}
  rf"([-+]?)(?:({_DECIMAL})(?:[eE]({_EXPONENT}))?|(?:({_DECIMAL})\s*(?:\\times|\\cdot|[*×])\s*)?"
  rf"10\^(?:\{{({_EXPONENT})\}}|({_EXPONENT})))"
)
_IN_TEXT = re.compile(  # a sign behind a word, a number or a bracket is a hyphen
  rf"(?:(?<![\w)])[-+])?(?:(?<![0-9/])[0-9]+/[0-9]+(?![0-9/])|(?:{_DECIMAL})(?:[eE]{_EXPONENT})?)"
)
_FRACTION = re.compile(
  r"([-+]?)(?:([0-9]+)/([0-9]+)|\\[dt]?frac(?:\{([0-9]+)\}\{([0-9]+)\}|([0-9])([0-9])))"
)
_SPELLED = [  # (pattern, how TeX has it), in turn
  (re.compile(pattern), written)
  for pattern, written in (
    ("\u2212", "-"),
    (r"(?<![\w)}])\u2013(?=[0-9\\.])", "-"),  # an en dash that is a sign
    ("°", r"^\\circ"),
    (r"√\s*([0-9]+|[A-Za-z])", r"\\sqrt{\1}"),
    ("≤", r"\\leq "),
    ("≥", r"\\geq "),
    (r"\\varnothing", r"\\emptyset"),
    (r"\\\\ ?\[[^\]]{0,20}\]", r"\\\\"),  # a row's end with a distance
  )
]


def after_thinking(text: str) -> str | None:
  """Returns the text after the last </think>; None if a thought was begun and not ended."""
  rest = text.rpartition("</think>")[2]
  return None if "<think>" in rest else rest


def boxed(text: str) -> str | None:
  r"""Returns the inside of the last \boxed{...} or \fbox{...}, or \boxed 5's number; None if it is open."""
  boxes = list(_BOX.finditer(text))
  if not boxes or boxes[-1].group(1):
    return boxes[-1].group(1) if boxes else None
  start, depth = boxes[-1].end(), 1
  for brace in _BRACE.finditer(text, start):
    depth += {"{": 1, "}": -1}.get(brace.group(), 0)
    if depth == 0:
      return text[start : brace.start()]
  return None


def answer_line(text: str) -> str | None:
  """Returns DAPO's form of answer: "Answer: ..." on the last line that is not empty."""
  lines = text.strip().splitlines()
  match = _LINE.fullmatch(lines[-1]) if lines else None
  return match.group(1).strip("*_ \t") if match else None


def hashes(text: str) -> str | None:
  """Returns GSM8K's form of answer: the text behind the last "####", up to the end of its line."""
  _, found, rest = text.rpartition("####")
  lines = rest.strip().splitlines()
  return lines[0].strip("*_ \t") if found and lines else None


def tag(text: str) -> str | None:
  """Returns R1's form of answer: the inside of the last <answer></answer>."""
  tags = _TAG.findall(text)
  return tags[-1] if tags else None


def last_number(text: str) -> str | None:
  """Returns the last number or fraction, wherever it stands: for models that have no form of answer yet."""
  numbers = _IN_TEXT.findall(text.replace("\u2212", "-"))
  return numbers[-1].rstrip(".") if numbers else None


FORMS = dict(boxed=boxed, answer=answer_line, hashes=hashes, tag=tag, number=last_number)


def check_form(form: str) -> None:
  """Raises ValueError for a form that answers have not."""
  if form not in FORMS:
    raise ValueError(f"form = {form!r}, but it is one of {', '.join(FORMS)}.")


def stated(text: str, form: str) -> str | None:
  """Returns a completion's answer in one of the FORMS, as it stands there; None if there is none."""
  visible = after_thinking(text)
  found = FORMS[form](visible) if visible is not None else None
  return (found.strip() or None) if found else None


def answer(text: str, form: str) -> str | None:
  """Returns a completion's answer in one of the FORMS, tidied; None if there is none."""
  found = stated(text, form)
  if found and _BOX.search(found):
    found = boxed(found)
  return (tidy(found) or None) if found else None


def truth(gold: str) -> str:
  """Returns the gold answer, alone or at the end of a solution: in a box, behind "####", or all of it."""
  return tidy(boxed(gold) or hashes(gold) or gold)


def tidy(text: str) -> str:
  """Removes math delimiters, TeX's spaces, a currency's $, and a sentence's end; spells Unicode as TeX."""
  for pattern, written in _SPELLED:
    text = pattern.sub(written, text)
  text = re.sub(r"(?<!\\)\\[()\[\],;:! ]", "", text)
  return text.lstrip(" \t\n$").rstrip(" \t\n$.,;")


class Number(NamedTuple):
  value: Fraction
  exact: bool  # written without a decimal point


def number(text: str) -> Number | None:
  r"""Reads a plain number: 72, -72, +72, 1,234, 72.50, .5, 3/4, \frac{3}{4}, \frac34, 1e-7, 2 \times 10^6.

  Returns None for all else.
  """
  if len(text) > 100:
    return None
  if match := _NUMBER.fullmatch(text):
    sign, plain, e, mantissa, braced, power = match.groups()
    value = Fraction((plain or mantissa or "1").replace(",", "").rstrip("."))
    exponent = int(e or braced or power or 0)
    value *= Fraction(10) ** exponent
    return Number(-value if sign == "-" else value, "." not in text and exponent >= 0)
  match = _FRACTION.fullmatch(text)
  if not match:
    return None
  above, below = (int(part) for part in match.groups()[1:] if part)
  if below == 0:
    return None
  return Number(Fraction(-above if match.group(1) == "-" else above, below), True)


def canonical(text: str) -> str:
  """Returns a form that equal plain numbers share; other answers only lose their spaces."""
  plain = number(text)
  return str(plain.value) if plain else "".join(text.split())


def program(text: str) -> str | None:
  """Returns the inside of the last ```python fence; None if it is not closed."""
  visible = after_thinking(text) or ""
  found, opened = None, None
  for fence in _fences(visible):
    if opened is None:
      opened = fence
      if fence.language in ("python", "py", "python3"):
        found = None  # until it is closed
    elif not fence.language:
      if opened.language in ("python", "py", "python3"):
        found = visible[opened.end : fence.start]
      opened = None
  return found


class _Fence(NamedTuple):
  """A line of three backticks and perhaps a language."""

  start: int  # of the line, in characters
  end: int  # of the line, its newline included
  language: str  # in small letters; "" for none


def _fences(text: str) -> Iterator[_Fence]:
  """Yields the fences, line by line: a pattern for a whole line takes quadratic time on some."""
  end = 0
  for line in text.split("\n"):
    start, end = end, end + len(line) + 1
    marks, found, rest = line.lstrip(" \t").partition("```")
    if found and not marks and "`" not in rest:
      yield _Fence(start, end, _WORD.match(rest.lstrip(" \t")).group().lower())
