"""Reads a peer's file as {key: value}: YAML, JSON, calls in Python, or the arguments in a shell script.

Nothing of the file is executed.  A value that is known only when it runs is returned apart, as it stands.
"""

import ast
import json
import operator
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from grpojax.tools.port.table import Peer

_START = re.compile(r"(?:^|/)train\w*\.py$|^verl\.|^tunix\.|main_ppo|grpo_main")  # of the program in a script
_OPERATIONS = {
  ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
}  # fmt: skip
LINE_END = ";"
_END = re.compile(r"[|;&>]|\d>")  # of a command
_SPREAD = re.compile(r"\$\{\w+\[[@*]\]\}|\$@")  # an array in a shell's command
_KEY = re.compile(rf"--|{_SPREAD.pattern}")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def read(path: str, peer: Peer) -> tuple[dict[str, Any], dict[str, str]]:
  """Returns (values by key, texts that are no literals by key).  Raises ValueError for an unreadable file."""
  try:
    text = Path(path).expanduser().read_text(encoding="utf-8-sig")
  except (OSError, UnicodeDecodeError) as error:
    raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
  kind = Path(path).suffix
  if kind == ".py":
    found = _python(path, text, peer)
  elif kind in (".yaml", ".yml", ".json"):
    found = _mapping(path, text, kind)
  else:
    found = _shell(text)
  if not found and kind != ".py":
    raise ValueError(f"{path} has no key and no argument; docs/coming_from.md says what is read.")
  short = {_short(key, peer): value for key, value in found.items()}
  unread = {key: value.text for key, value in short.items() if isinstance(value, Unread)}
  return {key: value for key, value in short.items() if key not in unread}, unread


class Unread:
  """Expression that is no literal, and the sentence to report about it."""

  def __init__(self, text: str):
    self.text = text


def _short(key: str, peer: Peer) -> str:
  for long, short in peer.prefix.items():
    if key.startswith(long):
      return short + key.removeprefix(long)
  return key


def literal(text: str) -> Any:
  """Returns what a word is: null, a truth value, a number (1e-6 too), a list, else the word."""
  if _NUMBER.fullmatch(text):
    return float(text) if re.search(r"[.eE]", text) else int(text)
  if re.fullmatch(r"[\d_.]+", text):  # two bounds; YAML takes 2_5 for 25
    return text
  try:
    return yaml.safe_load(text)
  except yaml.YAMLError:
    return text


def _mapping(path: str, text: str, kind: str) -> dict[str, Any]:
  try:
    found = json.loads(text) if kind == ".json" else yaml.safe_load(text)
  except (ValueError, yaml.YAMLError) as error:
    raise ValueError(f"{path} is no {kind[1:].upper()}: {' '.join(str(error).split())}.") from error
  if not isinstance(found, dict):
    raise ValueError(f"{path} is no mapping of keys to values.")
  return {key: _value(value) for key, value in _flat(found, "")}


def _flat(tree: dict, at: str):
  for key, value in tree.items():
    if isinstance(value, dict) and value:
      yield from _flat(value, f"{at}{key}.")
    else:
      yield f"{at}{key}", value


def _value(value: Any) -> Any:
  if isinstance(value, str):
    return Unread(f"{value}, which is known only when it runs") if "$" in value else literal(value)
  return value


def _python(path: str, text: str, peer: Peer) -> dict[str, Any]:
  """Reads the keywords of the calls that the table names, wherever they are."""
  try:
    tree = ast.parse(text)
  except SyntaxError as error:
    raise ValueError(f"{path} is no Python: {error.msg}, line {error.lineno}.") from error
  nodes = list(ast.walk(tree))
  dicts = [node for node in nodes if isinstance(node, ast.Dict)]
  pairs = [pair for node in dicts for pair in zip(node.keys, node.values, strict=True)]
  of_evaluation = [value for key, value in pairs if key and ast.unparse(key).upper().endswith("EVAL")]
  calls = [node for node in nodes if isinstance(node, ast.Call) and _named(node) in peer.calls]
  calls = [call for call in calls if call not in of_evaluation]
  if not calls:
    raise ValueError(f"{path} calls none of {', '.join(peer.calls)}.")
  found: dict[str, Any] = {}
  texts: dict[str, str] = {}
  for call in calls:
    found |= peer.calls[_named(call)]
    for keyword in call.keywords:
      if keyword.value in calls:
        continue  # RLTrainingConfig(...) inside ClusterConfig(...), which is read by itself
      key, written = keyword.arg or f"**{ast.unparse(keyword.value)}", ast.unparse(keyword.value)
      if texts.setdefault(key, written) != written:
        found[key] = Unread(f"{texts[key]}, and {written} elsewhere in the file")
        continue
      try:
        found[key] = ast.literal_eval(keyword.value)
      except ValueError:
        found[key] = Unread(f"{written}, which is known only when it runs")
  return found


def _named(call: ast.Call) -> str:
  return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _shell(text: str) -> dict[str, Any]:
  """Reads --key value, --key=value and a.b=c of the program that a script starts; of a plain list, all."""
  variables, words = _words(text)
  starts = [number for number, word in enumerate(words) if _START.search(word)]
  words = words[starts[0] + 1 :] if starts else [word for word in words if word != LINE_END]
  ends = [number for number, word in enumerate(words) if starts and _END.match(word)]
  words = words[: ends[0]] if ends else words
  found: dict[str, Any] = {}
  while words:
    word, *words = words
    if _SPREAD.fullmatch(word):
      found[word] = Unread("arguments that are set elsewhere")
    elif word.startswith("--"):
      key, equals, value = word[2:].partition("=")
      count = 0 if equals else next((n for n, word in enumerate(words) if _KEY.match(word)), len(words))
      values, words = [value] if equals else words[:count], words[count:]
      found[key.replace("-", "_")] = _argument(values, variables)
    elif match := re.fullmatch(r"[+~]*([\w.]+)=(.*)", word, re.DOTALL):
      found[match[1]] = _argument([match[2]], variables)
    elif starts:
      found[f"'{word}'"] = Unread("a word without a key")
  return found


def _argument(values: list[str], variables: dict[str, str]) -> Any:
  """Returns the value of a key: True without one, of several a list."""
  values = [_resolved(value, variables) for value in values]
  if unknown := [value for value in values if "$" in value]:
    return Unread(f"{unknown[0]}, which is known only when it runs")
  read = [literal(value) for value in values]
  return (read[0] if len(read) == 1 else read) if read else True


def _words(text: str) -> tuple[dict[str, str], list[str]]:
  """Returns (variables, words of the script), with arrays put where "${NAME[@]}" asks for them."""
  lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
  joined = re.sub(r"\\\s*\n", " ", "\n".join(lines))
  arrays: dict[str, list[str]] = {}

  def keep(match: re.Match) -> str:
    arrays[match[1]] = _split(match[2])
    return ""

  joined = re.sub(r"^\s*(\w+)=\(([^()]*(?:\$\([^\n]*\)[^()]*)*)\)\s*$", keep, joined, flags=re.MULTILINE)
  variables, words = {}, []
  for line in joined.splitlines():
    line = re.sub(r"^\s*(export|local|declare)\s+", "", line)
    if match := re.fullmatch(r"\s*([A-Za-z_]\w*)=(\S*|'[^']*'|\"[^\"]*\"|\$\(\(.*\)\))\s*(?:#.*)?", line):
      variables[match[1]] = match[2].strip("'\"")
      continue
    words += [*_split(line), LINE_END]
  for name in arrays:
    spread = {f"${{{name}[@]}}", f"${{{name}[*]}}"}
    at = next((number for number, word in enumerate(words) if word in spread), None)
    if at is not None:
      words[at : at + 1] = arrays[name]
    elif not any(_START.search(word) for word in words):  # a list of arrays, without the program
      words += arrays[name]
  return variables, words


def _split(text: str) -> list[str]:
  words = []
  for line in text.splitlines() or [text]:
    try:
      words += shlex.split(line, comments=True)
    except ValueError:  # a quotation over several lines; it holds no argument
      words += line.split()
  return words


def _resolved(word: str, variables: dict[str, str], depth: int = 8) -> str:
  """Puts in variables that the script sets to literals, ${NAME:-default} and $((arithmetic))."""
  for _ in range(depth):
    before = word
    word = re.sub(r"\$\{(\w+):?-([^${}]*)\}", lambda m: variables.get(m[1], m[2]), word)
    word = re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda m: variables.get(m[1] or m[2], m[0]), word)
    word = re.sub(r"\$\(\(([^()$]*)\)\)", lambda m: _sum(m[1], variables, m[0]), word)
    if word == before:
      break
  return word


def _sum(text: str, variables: dict[str, str], whole: str) -> str:
  """Returns the number that a shell's arithmetic of + - * / makes of names and numbers, else the text."""
  text = re.sub(r"[A-Za-z_]\w*", lambda m: variables.get(m[0], m[0]), text)
  if not re.fullmatch(r"[\d\s+*/-]+", text):
    return whole
  try:
    return str(_worked_out(ast.parse(text.strip(), mode="eval").body))
  except (SyntaxError, ZeroDivisionError, ValueError):
    return whole


def _worked_out(node: ast.expr) -> int:
  if isinstance(node, ast.Constant):
    return node.value
  if not isinstance(node, ast.BinOp):
    raise ValueError(ast.unparse(node))
  return _OPERATIONS[type(node.op)](_worked_out(node.left), _worked_out(node.right))
