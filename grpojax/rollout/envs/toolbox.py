"""Tools that come with the package; any function of one's own with a typed signature is one, too."""

import ast
import operator
from fractions import Fraction

from grpojax.rewards import sandbox

_APPLY = {
  ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
  ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
_LONGEST = 1000  # characters of an expression
_EXPONENT, _BITS = 1000, 4096  # of a power, at most: more takes time without end
_CATCH = """
import traceback
try:
  exec(compile({program!r}, "program", "exec"), {{"__name__": "__main__"}})
except SystemExit:
  pass
except BaseException:
  print(traceback.format_exc().replace('  File "<program>", line 4, in <module>\\n', ""))
"""


class Unavailable(Exception):
  """Raised by a tool that could not do its work for no fault of the call: the episode has failed."""


def calculator(expression: str) -> str:
  """Evaluates an expression of numbers, + - * / // % ** and parentheses, exactly."""
  if len(expression) > _LONGEST:
    raise ValueError(f"the expression is longer than {_LONGEST} characters")
  try:
    value = _value(ast.parse(expression.strip().replace("^", "**"), mode="eval").body)
  except MemoryError:  # what Python's parser says to deep nesting
    raise ValueError("the expression is nested too deeply") from None
  if value.denominator == 1:
    return str(value.numerator)
  return f"{value} = {float(value):.12g}"


def _value(node: ast.AST) -> Fraction:
  if isinstance(node, ast.Constant) and type(node.value) in (int, float):
    return Fraction(str(node.value))
  if isinstance(node, ast.UnaryOp) and type(node.op) in _APPLY:
    return _APPLY[type(node.op)](_value(node.operand))
  if isinstance(node, ast.BinOp):
    left, right = _value(node.left), _value(node.right)
    if type(node.op) in _APPLY:
      return _bounded(Fraction(_APPLY[type(node.op)](left, right)))
    if isinstance(node.op, ast.Pow):
      size = max(left.numerator.bit_length(), left.denominator.bit_length())
      if right.denominator != 1 or abs(right) > _EXPONENT or size * abs(right) > _BITS:
        raise ValueError(f"the exponent {right} is no whole number, or makes too large a power")
      return left ** int(right)
  raise ValueError("the expression may have numbers, + - * / // % ** and parentheses")


def _bounded(value: Fraction) -> Fraction:
  if max(value.numerator.bit_length(), value.denominator.bit_length()) > _BITS:
    raise ValueError("the result is too large")
  return value


def python(code: str) -> str:
  """Runs a Python program and returns what it prints; there is no network, no file, and 5 seconds of CPU."""
  try:
    outputs = sandbox.run(_CATCH.format(program=code), [""], None, timeout=5.0, memory_mb=512)
  except (OSError, RuntimeError) as error:
    raise Unavailable(str(error)) from error
  return outputs[0].rstrip() if outputs else "no output: the program took too long or too much memory"


def check() -> None:
  """Raises ValueError where no program can be run on this machine."""
  if obstacle := sandbox.obstacle():
    raise ValueError(f"the tool python cannot run: {obstacle}")


python.check = check
