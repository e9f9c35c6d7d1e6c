"""Tools: the policy calls functions, reads what they return, and answers when it makes no call.

    question and tools     <tool_call>{"name": "calculator", "arguments": {"expression": "17*23"}}</tool_call>
    391                    The answer is #391.

The answer is scored as that of a task of one turn.  A call that cannot be read, or that its function refuses,
is answered with what is wrong, as one that succeeds is with what it gives: in the message of a tool.  The
prompt describes the tools as the chat template does (`schemas`).
"""

import importlib
import json
from collections.abc import Callable, Mapping, Sequence

from grpojax.rollout.envs import calls, toolbox
from grpojax.rollout.envs.interface import Turn
from grpojax.rollout.envs.single_turn import RULE, SingleTurn

_LONGEST = 4000  # characters of a result that the policy is shown


class Tools:
  """`tools` are names of toolbox.py or 'module:function'; `reward` is as config.reward, see SingleTurn."""

  def __init__(
    self, tools: Sequence[str] = ("calculator",), reward: Mapping = RULE, max_steps: int = 8
  ):
    if max_steps < 1:
      raise ValueError(f"max_steps = {max_steps} must be a number of turns, 1 or more.")
    self.functions = _by_name(tools)
    self.task = SingleTurn(reward)
    self.max_steps = max_steps

  @staticmethod
  def check(tools: Sequence[str] = ("calculator",), **_) -> None:
    """Raises ValueError where a tool cannot run on this machine."""
    for function in _by_name(tools).values():
      getattr(function, "check", lambda: None)()

  @staticmethod
  def schemas(tools: Sequence[str] = ("calculator",), **_) -> list[dict]:
    """Returns the tools' descriptions, as chat templates take them."""
    return [calls.schema(function) for function in _by_name(tools).values()]

  def reset(self, example: dict, seed: int) -> Turn:
    self.steps = 0
    return self.task.reset(example, seed)

  def step(self, action: str) -> Turn:
    self.steps += 1
    try:
      call = calls.read(action)
      if call is None:
        return self.task.step(action)
      text, feedback, valid = *self._run(call), True
    except calls.CallError as error:
      text, feedback, valid = f"error: {error}", str(error), False
    ended = self.steps >= self.max_steps
    return Turn(text, truncated=ended, feedback=feedback, valid=valid, role="tool")

  def close(self) -> None:
    self.task.close()

  def _run(self, call: calls.Call) -> tuple[str, str]:
    """Returns what a call gives, as text, and what went wrong.  Raises CallError for one that is none."""
    if call.name not in self.functions:
      raise calls.CallError(f"there is no tool {call.name}, only {', '.join(self.functions)}")
    function = self.functions[call.name]
    arguments = calls.bind(function, call.arguments)
    try:
      result = function(**arguments)
      text = result if isinstance(result, str) else json.dumps(result, default=str)
    except (MemoryError, toolbox.Unavailable):
      raise
    except Exception as error:  # the policy's call, and the policy's to repair
      wrong = f"{type(error).__name__}: {error}"
      return _cut(f"error: {wrong}"), _cut(wrong)
    return _cut(text.encode("utf-8", "replace").decode()), ""


def _cut(text: str) -> str:
  """Returns a text without its middle, if that is long, and says so."""
  if len(text) <= _LONGEST:
    return text
  half = _LONGEST // 2
  return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def _by_name(tools: Sequence[str]) -> dict[str, Callable]:
  """Returns the functions by the name that the policy calls.  Raises ValueError where two have the same."""
  found = {function.__name__: function for function in map(_find, tools)}
  if len(found) < len(tools):
    raise ValueError(f"tools = {list(tools)}: two have the same name; rename one.")
  return found


def _find(name: str) -> Callable:
  module, _, function = name.rpartition(":")
  try:
    found = getattr(importlib.import_module(module) if module else toolbox, function)
    calls.schema(found)
  except (ModuleNotFoundError, AttributeError) as error:
    raise ValueError(
      f"there is no tool '{name}' ({error}); write calculator, python or 'module:function'."
    ) from None
  return found


make = Tools
