"""The gold answer as text, out of the ways in which public files hold it."""

import re
from typing import Any

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*")


def plain(value: Any) -> str:
  """Returns '204' for 204, 204.0, ' 204 ' and ['204']; several answers are joined by commas.

  Raises ValueError where the value is a nested column, one of whose own columns is meant.
  """
  if isinstance(value, list):
    return ", ".join(plain(item) for item in value)
  if isinstance(value, dict):
    raise ValueError(f"the answer is not text but has the fields {', '.join(value)}")
  if value is None or value != value:  # NaN is how pandas writes a missing one
    return ""
  if isinstance(value, float) and value.is_integer():
    value = int(value)
  return str(value).strip()


def after_hashes(solution: Any) -> str:
  """Returns GSM8K's answer: '1234' of '... so 1,234 in all.\\n#### 1,234'; '' where there is no '####'."""
  _, found, answer = str(solution).rpartition("####")
  return _THOUSANDS.sub("", answer.strip()) if found else ""


def last_boxed(solution: Any) -> str:
  r"""Returns MATH's answer: '\frac{1}{2}' of '... is $\boxed{\frac{1}{2}}$.', also of '\boxed 7', or ''."""
  text = str(solution)
  boxes = list(_BOX.finditer(text))
  if not boxes:
    return ""
  start = boxes[-1].end()
  if text[start : start + 1] != "{":
    return re.match(r"[^\s$.,]*", text[start:]).group()
  depth = 0
  for match in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, start):  # \{ and \} are letters
    depth += {"{": 1, "}": -1}.get(match.group(), 0)
    if not depth:
      return text[start + 1 : match.start()].strip()
  return ""  # never closed
