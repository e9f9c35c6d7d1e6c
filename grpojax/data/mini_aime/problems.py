"""Problems: expression trees, drawn at random, told in digits or in words, and their steps.

Every operation on the way can be done in the head (`_easy`), and every value is an
integer in 0..999, as AIME's answers are.
"""

import random
from typing import NamedTuple

LARGEST = 999
_APPLY = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
_BINDS = {"+": 1, "-": 1, "*": 2}

Tree = int | tuple[str, "Tree", "Tree"]  # a number, or (operation, left, right)


class Problem(NamedTuple):
  question: str
  tree: Tree
  task: str  # "expression", or the name of the story


class Step(NamedTuple):
  """One operation.  An operand is a number, or ("step", i): the result of the i-th step."""

  operation: str
  left: int | tuple[str, int]
  right: int | tuple[str, int]


_STORY_SHARE = 0.35
_OPERATIONS_ODDS = {1: 3, 2: 4, 3: 2, 4: 1}
_RIGHT_SHARE = 0.15  # of the trees, how many may have an operation on the right of another
_TWO_DIGITS = {"left": 0.4, "right": 0.08}  # share of the numbers on that side of an operation
_BIG_SHARE = 0.25  # of the problems that go beyond 99 on the way, how many are kept

_NAMES = ("Ann", "Bob", "Eve", "Tom", "Max", "Ida")
_THINGS = ("figs", "nuts", "eggs", "pies", "buns")
_STORIES = {  # name -> odds, text, tree
  "buy": (2, "{name}: {a} {things}, buys {b}. Now?", ("+", "a", "b")),
  "eat": (2, "{name}: {a} {things}, eats {b}. Left?", ("-", "a", "b")),
  "bags": (2, "{a} bags of {b} {things}. In all?", ("*", "a", "b")),
  "trade": (4, "{a} {things}, {b} more, {c} go?", ("-", ("+", "a", "b"), "c")),
  "open": (3, "{a} bags of {b} {things}, {c} go?", ("-", ("*", "a", "b"), "c")),
  "cost": (3, "{a} and {b} {things} at {c} each?", ("*", ("+", "a", "b"), "c")),
  "boxes": (
    1,
    "{a} bags of {b} {things}, {c} of {d}?",
    ("+", ("*", "a", "b"), ("*", "c", "d")),
  ),
  "party": (
    0.25,
    "{a} bags of {b} {things}, {c} of {d}, {e} go?",
    ("-", ("+", ("*", "a", "b"), ("*", "c", "d")), "e"),
  ),
}


def draw(rng: random.Random) -> Problem:
  """Draws a random problem: its kind once, its numbers until every step is easy."""
  if rng.random() < _STORY_SHARE:
    make, kind = _draw_story, _pick(rng, {name: odds for name, (odds, _, _) in _STORIES.items()})
  else:
    make, kind = _draw_expression, _pick(rng, _OPERATIONS_ODDS)
  problem = make(rng, kind)
  while not _wanted(problem, rng):
    problem = make(rng, kind)
  return problem


def _wanted(problem: Problem, rng: random.Random) -> bool:
  steps = to_steps(problem.tree)
  return _all_easy(steps) and (max(run(steps)) < 100 or rng.random() < _BIG_SHARE)


def _pick(rng: random.Random, odds: dict):
  return rng.choices(list(odds), list(odds.values()))[0]


def _draw_expression(rng: random.Random, operations: int) -> Problem:
  tree = _draw_tree(rng, operations)
  return Problem(f"{render(tree)}=?", tree, "expression")


def _draw_tree(rng: random.Random, operations: int, side: str = "left") -> Tree:
  if operations == 0:
    return _draw_number(rng, side)
  on_the_right = rng.randint(0, operations - 1) if rng.random() < _RIGHT_SHARE else 0
  left = _draw_tree(rng, operations - 1 - on_the_right)
  right = _draw_tree(rng, on_the_right, "right")
  return (rng.choice("+-*"), left, right)


def _draw_number(rng: random.Random, side: str) -> int:
  if rng.random() >= _TWO_DIGITS[side]:
    return rng.randint(2, 9)
  return rng.choice((10 * rng.randint(1, 9), rng.randint(11, 99)))


def _draw_story(rng: random.Random, name: str) -> Problem:
  _, text, tree = _STORIES[name]
  numbers = {letter: _draw_number(rng, "right" if letter > "a" else "left") for letter in "abcde"}
  question = text.format(name=rng.choice(_NAMES), things=rng.choice(_THINGS), **numbers)
  return Problem(question, _fill(tree, numbers), name)


def _fill(tree, numbers: dict[str, int]) -> Tree:
  if isinstance(tree, str):
    return numbers[tree]
  operation, left, right = tree
  return (operation, _fill(left, numbers), _fill(right, numbers))


def render(tree: Tree) -> str:
  """Renders with the fewest parentheses that keep the steps' order: ("*", ("+", 7, 5), 6) -> "(7+5)*6"."""
  if isinstance(tree, int):
    return str(tree)
  operation, left, right = tree
  left_text, right_text = render(left), render(right)
  if not isinstance(left, int) and _BINDS[left[0]] < _BINDS[operation]:
    left_text = f"({left_text})"
  if not isinstance(right, int) and _BINDS[right[0]] <= _BINDS[operation]:
    right_text = f"({right_text})"
  return f"{left_text}{operation}{right_text}"


def to_steps(tree: Tree) -> list[Step]:
  """Returns the operations in an order in which they can be done, left operands first."""
  steps = []

  def visit(node):
    if isinstance(node, int):
      return node
    operation, left, right = node
    steps.append(Step(operation, visit(left), visit(right)))
    return ("step", len(steps) - 1)

  visit(tree)
  return steps


def operand(number: int | tuple[str, int], values: list[int]) -> int:
  return number if isinstance(number, int) else values[number[1]]


def run(steps: list[Step], slip_at: int = -1, slip: int = 0) -> list[int]:
  """Returns the result of every step; `slip` is added to the result of step `slip_at`, and carried on."""
  values = []
  for i, (operation, left, right) in enumerate(steps):
    value = _APPLY[operation](operand(left, values), operand(right, values))
    values.append(value + slip if i == slip_at else value)
  return values


def _all_easy(steps: list[Step]) -> bool:
  values = run(steps)
  return all(
    _easy(step.operation, operand(step.left, values), operand(step.right, values))
    for step in steps
  )


def _easy(operation: str, left: int, right: int) -> bool:
  """Returns True for sums and differences of at most 99 and the times table, also by tens, within 0..999."""
  small, large = sorted((left, right))
  if operation == "*":
    return small <= 9 and (large <= 9 or (large % 10 == 0 and large <= 90))
  if operation == "+":
    return small <= 99 and left + right <= LARGEST
  return right <= min(left, 99)
