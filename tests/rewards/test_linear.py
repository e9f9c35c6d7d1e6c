"""What reads a completion in the trainer takes steps in proportion to its length, whatever the text.

A pattern that backtracks quadratically holds the interpreter for hours on one long completion.  Steps are
counted, by an engine of our own that backtracks as `re` does; nothing is timed.
"""

import itertools
import random
import re
import sys
import threading
from re import _constants as sre
from re import _parser as parser

import pytest

from grpojax.rewards import countdown, extract, rules, shaping

ANYWHERE, AT_ONE_PLACE = "at every place", "at one place"
USED = {  # pattern -> how it is applied to a completion
  extract._BOX: ANYWHERE, extract._BRACE: ANYWHERE, extract._IN_TEXT: ANYWHERE, extract._TAG: ANYWHERE,
  extract._LINE: AT_ONE_PLACE, extract._WORD: AT_ONE_PLACE, extract._NUMBER: AT_ONE_PLACE,
  extract._FRACTION: AT_ONE_PLACE, **{pattern: ANYWHERE for pattern, _ in extract._SPELLED},
  rules._NUMBER: AT_ONE_PLACE, rules._END: AT_ONE_PLACE, rules._STEP: ANYWHERE,
  shaping._R1_FORM: AT_ONE_PLACE, shaping._THOUGHT: AT_ONE_PLACE,
}  # fmt: skip
PIECES = (
  " ", "`", "```", "``` ", "a", "#", "$", "1", "1,111", ".", "0", "-", "*_ ", "answer", "answer:", "\n", "\t",
  "<think>", "</think>", "<answer>", "</answer>", "<", "\\", "{", "}", "\\{", "\\frac", "1+1=2", "=",
  "\\boxed", "1/", "e1", "√", "\\\\[",
)  # fmt: skip
WAS_QUADRATIC = (
  (re.compile(r"\s*\$?\s*([-+]?)[0-9]+"), AT_ONE_PLACE),
  (re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n`]*$", re.MULTILINE), AT_ONE_PLACE),
  (re.compile(r"<think>.*?</think>", re.DOTALL), ANYWHERE),
)


def steps(pattern: re.Pattern, text: str, how: str) -> int:
  """Elements of the pattern that are tried against a character or a place, until it matches nowhere more."""
  tree, tried = parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE.value), 0

  def match(nodes, at, then):
    nonlocal tried
    tried += 1
    if not nodes:
      return then(at)
    (op, value), rest = nodes[0], nodes[1:]
    on = lambda i: match(rest, i, then)
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
      return repeat(*value, op is sre.MAX_REPEAT, 0, at, on)
    if op is sre.SUBPATTERN:
      return match(list(value[3]), at, on)
    if op is sre.BRANCH:
      return next((end for way in value[1] if (end := match(list(way), at, on)) is not None), None)
    if op in (sre.ASSERT, sre.ASSERT_NOT):
      from_ = at if value[0] > 0 else at - 1
      seen = from_ >= 0 and match(list(value[1]), from_, lambda i: i) is not None
      return on(at) if seen == (op is sre.ASSERT) else None
    if op is sre.AT:
      begins = at == 0 or (value is sre.AT_BEGINNING and pattern.flags & re.M and text[at - 1] == "\n")
      ends = at == len(text) or (pattern.flags & re.M and text[at] == "\n")
      return on(at) if (ends if value is sre.AT_END else begins) else None
    return on(at + 1) if at < len(text) and fits(op, value, text[at]) else None

  def repeat(least, most, body, greedy, done, at, on):
    more = lambda: match(
      list(body), at, lambda end: None if end == at else repeat(least, most, body, greedy, done + 1, end, on)
    )
    ways = [more] if done < least else [more, lambda: on(at)] if greedy else [lambda: on(at), more]
    if done == most:
      ways = [lambda: on(at)]
    return next((end for way in ways if (end := way()) is not None), None)

  def fits(op, value, character):
    if op is sre.IN:
      negated = value[0][0] is sre.NEGATE
      return any(fits(*item, character) for item in value if item[0] is not sre.NEGATE) != negated
    if op is sre.RANGE:
      return value[0] <= ord(character) <= value[1]
    if op is sre.CATEGORY:
      return {
        sre.CATEGORY_SPACE: character.isspace(), sre.CATEGORY_WORD: character.isalnum() or character == "_",
      }[value]  # fmt: skip
    if op is sre.ANY:
      return pattern.flags & re.DOTALL or character != "\n"
    return (character.lower() == chr(value).lower()) == (op is sre.LITERAL)

  at = 0
  while at <= len(text):
    end = match(list(tree), at, lambda i: i)
    if how == AT_ONE_PLACE:
      break
    at = at + 1 if end is None else max(end, at + 1)
  return tried


def texts(times: int):
  """Each piece repeated, behind each other piece, and closed by what fits nothing."""
  for first, piece in itertools.product(("", *PIECES), PIECES):
    yield first + piece * times + "`?"


def deep(check) -> None:
  """Calls `check` where Python may recurse as deep as the text is long."""
  raised = []

  def run():
    try:
      check()
    except BaseException as error:
      raised.append(error)

  limit, size = sys.getrecursionlimit(), threading.stack_size(512 << 20)
  sys.setrecursionlimit(10**6)
  try:
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
  finally:
    sys.setrecursionlimit(limit)
    threading.stack_size(size)
  if raised:
    raise raised[0]


def growth(pattern, how) -> float:
  """The largest factor by which twice the text takes more steps."""
  few, many = ([steps(pattern, text, how) for text in texts(n)] for n in (10, 20))
  return max(b / a for a, b in zip(few, many, strict=True))


@pytest.mark.parametrize("pattern", USED, ids=lambda pattern: pattern.pattern[:30])
def test_twice_the_text_takes_twice_the_steps(pattern):
  deep(lambda: check(growth(pattern, USED[pattern]) < 2.5))


@pytest.mark.parametrize(("pattern", "how"), WAS_QUADRATIC, ids=["spaces", "fence", "thought"])
def test_the_count_finds_what_is_quadratic(pattern, how):
  deep(lambda: check(growth(pattern, how) > 3))


def check(holds):
  assert holds


def test_every_pattern_that_reads_completions_is_counted():
  for module in (countdown, extract, rules, shaping):
    found = {value for value in vars(module).values() if isinstance(value, re.Pattern)}
    assert found <= USED.keys(), f"a new pattern in {module.__name__}: say here how it is used"


@pytest.mark.parametrize("read", [extract.program, lambda text: rules.extract(text, "#")])
def test_a_million_characters_are_read(read):
  for text in ("#" + " " * 10**6 + "x", "```" + "a" * 10**6 + "`", "```python\n" * 10**5):
    assert read(text) is None


OLD_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n`]*$", re.MULTILINE)


def test_fences_are_what_the_pattern_for_them_found():
  rng = random.Random(1)
  for _ in range(5000):
    pieces = [" ", "\t", "```", "`", "py", "python", "\n", "\r\n", "x = 1", "+", "-"]
    text = "".join(rng.choices(pieces, k=12))
    found = [(m.start(), m.end() + 1, m.group(1).lower()) for m in OLD_FENCE.finditer(text)]
    assert [tuple(fence) for fence in extract._fences(text)] == found


OLD_NUMBER = re.compile(r"\s*\$?\s*([-+\u2212]?)((?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+))(?:\.0*)?")


def test_integers_are_what_the_pattern_for_them_found():
  rng = random.Random(2)
  for _ in range(5000):
    pieces = [" ", "\n", "\u3000", "$", "-", "+", "\u2212", "7", "012", ",345", ".", ".0", "x"]
    text = "".join(rng.choices(pieces, k=7))
    old = OLD_NUMBER.match(text)
    whole = old and rules._END.match(text, old.end())
    digits = old.group(2).replace(",", "").lstrip("0") or "0" if whole else None
    signed = digits and (f"-{digits}" if old.group(1) in ("-", "\u2212") and digits != "0" else digits)
    assert rules._leading_integer(text) == signed
