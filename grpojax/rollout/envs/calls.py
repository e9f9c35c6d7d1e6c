"""Calls of tools: which one a text makes, and whether its arguments are what the function takes.

A call is JSON, {"name": ..., "arguments": {...}}, as chat templates write it: between <tool_call> and
</tool_call> (Qwen, Hermes), after [TOOL_CALLS] as a list (Mistral), with "parameters" for "arguments"
and perhaps after <|python_tag|> (Llama 3), or alone.
"""

import inspect
import json
import re
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}


class Call(NamedTuple):
  name: str
  arguments: dict[str, Any]


class CallError(Exception):
  """Error in a call, in words for the policy."""


def read(text: str) -> Call | None:
  """Returns the first call of a text; None if it has none.  Raises CallError for one that cannot be read."""
  found = re.search(r"<tool_call>(.*?)(?:</tool_call>|$)", text, re.DOTALL)
  found = found or re.search(r"\[TOOL_CALLS\](.*)$", text, re.DOTALL)
  written = (found[1] if found else text.strip().removeprefix("<|python_tag|>")).strip()
  if not found and not written.startswith("{"):
    return None
  try:
    call, end = json.JSONDecoder().raw_decode(written)
  except (ValueError, RecursionError) as error:
    raise CallError(f"the call is no JSON ({error})") from None
  if written[end:].strip() and not found:
    raise CallError("text follows the call")
  if isinstance(call, list) and call:
    call = call[0]
  if not isinstance(call, dict) or not isinstance(call.get("name"), str):
    raise CallError('a call has the form {"name": ..., "arguments": {...}}')
  try:
    json.dumps(call, ensure_ascii=False).encode()
  except UnicodeEncodeError:  # by an escape, as \ud800
    raise CallError("the call has half a character") from None
  arguments = call.get("arguments", call.get("parameters", {}))
  if not isinstance(arguments, dict):
    raise CallError("the arguments of a call are an object")
  return Call(call["name"], arguments)


def schema(function: Callable) -> dict[str, Any]:
  """Returns a function's description as chat templates take it in `tools`; from its signature and docstring.

  Raises ValueError where a parameter has no type that JSON has.
  """
  properties, required = {}, []
  for name, parameter in _parameters(function).items():
    properties[name] = _described(function, name, parameter.annotation)
    if parameter.default is inspect.Parameter.empty:
      required.append(name)
  about = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
  parameters = dict(type="object", properties=properties, required=required)
  return dict(
    type="function", function=dict(name=function.__name__, description=about, parameters=parameters)
  )


def bind(function: Callable, arguments: dict[str, Any]) -> dict[str, Any]:
  """Returns the arguments, if they are what the function takes.  Raises CallError."""
  takes = _parameters(function)
  for name in arguments:
    if name not in takes:
      raise CallError(f"{function.__name__} has no {name}; it takes {', '.join(takes) or 'nothing'}")
  for name, parameter in takes.items():
    if name not in arguments and parameter.default is inspect.Parameter.empty:
      raise CallError(f"{function.__name__} needs {name}")
    if name in arguments and not _fits(arguments[name], parameter.annotation):
      written = json.dumps(arguments[name])[:60]
      raise CallError(f"{name} of {function.__name__} is {_words(parameter.annotation)}, and not {written}")
  return arguments


def _parameters(function: Callable) -> dict[str, inspect.Parameter]:
  return dict(inspect.signature(function, eval_str=True).parameters)


def _described(function: Callable, name: str, annotation) -> dict[str, Any]:
  origin, parts = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
  if origin is typing.Literal:
    return dict(type=_JSON_TYPES[type(parts[0])], enum=list(parts))
  if origin in (typing.Union, types.UnionType):
    kinds = [part for part in parts if part is not types.NoneType]
    if len(kinds) == 1:
      return _described(function, name, kinds[0])
  if origin is list and parts:
    return dict(type="array", items=_described(function, name, parts[0]))
  if origin not in _JSON_TYPES:
    raise ValueError(
      f"the tool {function.__name__}: annotate {name} as str, int, float, bool, list, dict or a Literal."
    )
  return dict(type=_JSON_TYPES[origin])


def _fits(value, annotation) -> bool:
  origin, parts = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
  if origin is typing.Literal:
    return any(value == part and type(value) is type(part) for part in parts)
  if origin in (typing.Union, types.UnionType):
    return any(_fits(value, part) for part in parts)
  if origin is types.NoneType:
    return value is None
  if origin is float:
    return isinstance(value, int | float) and not isinstance(value, bool)
  if origin is int:
    return isinstance(value, int) and not isinstance(value, bool)
  if origin is list and parts:
    return isinstance(value, list) and all(_fits(item, parts[0]) for item in value)
  return isinstance(value, origin)


def _words(annotation) -> str:
  if typing.get_origin(annotation) is typing.Literal:
    return "one of " + ", ".join(map(json.dumps, typing.get_args(annotation)))
  return getattr(annotation, "__name__", str(annotation))
