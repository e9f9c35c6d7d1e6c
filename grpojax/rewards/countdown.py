"""Countdown: reach the target with the given numbers, each used once."""

import ast
import json
import operator
from collections import Counter
from fractions import Fraction

from grpojax.rewards import extract

_APPLY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_LONGEST = 200  # characters; no honest expression is longer, and a parser can be made to recurse


def expression(sample, *, form: str = "tag", every: bool = True) -> float | None:
  """Returns 1 if the answer is an expression of the row's numbers that equals its target, else 0.

  `form` is one of extract.FORMS (TinyZero's is tag, the last <answer></answer>); what follows an "=" is
  not read.  `every` False lets numbers be left out.  None without numbers in the row.
  """
  row = json.loads(sample.example["meta"])
  numbers = row.get("nums") or row.get("numbers")
  if not isinstance(numbers, list) or row.get("target") is None:
    return None
  answer = _answer(sample.text, form=form)
  value, used = _evaluate(answer or "")
  given = Counter(map(int, numbers))
  allowed = used == given if every else not used - given
  return float(value is not None and value == Fraction(row["target"]) and allowed)


def _evaluate(text: str) -> tuple[Fraction | None, Counter]:
  """Returns the exact value and the numbers in it; None unless an expression of integers and + - * /."""
  used = Counter()

  def value(node) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
      used[node.value] += 1
      return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _APPLY:
      return _APPLY[type(node.op)](value(node.left), value(node.right))
    raise ValueError("no number and no operation")

  try:
    return value(ast.parse(text.strip(), mode="eval").body), used
  except (ValueError, SyntaxError, ZeroDivisionError, RecursionError, MemoryError):
    return None, used


def _answer(text: str, *, form: str = "tag", **_) -> str | None:
  found = extract.stated(text, form) if form == "tag" else extract.answer(text, form)
  formula = (found or "").partition("=")[0]
  formula = formula.replace("\\times", "*").replace("\\div", "/").replace("×", "*").replace("÷", "/")
  return formula.strip() if formula and len(formula) <= _LONGEST else None


def _check(*, form, every):
  extract.check_form(form)


expression.needs = ("meta",)
expression.check = _check
expression.answer = _answer
