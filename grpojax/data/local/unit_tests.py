"""The test cases of programs, as JSON: {"inputs": [...], "outputs": [...], "fn_name": optional}.

That is the form of APPS.  Without `fn_name` an input is what the program reads and an output what
it prints; with it an input is the list of a function's arguments and an output what it returns, or
both are text, as in LiveCodeBench: one argument a line and the result, in JSON.
"""

import base64
import io
import json
import pickle
import zlib
from typing import Any


def from_apps(value: Any) -> str:
  """Returns the tests of a dict in APPS's form, of a list of cases, or of either as JSON; '' without any."""
  value = json.loads(value) if isinstance(value, str | bytes) else value
  if isinstance(value, list):
    return _from_cases(value, None)
  return _dump(value["inputs"], value["outputs"], value.get("fn_name")) if value else ""


def from_livecodebench(row: dict[str, Any]) -> str:
  """Returns the public cases, then the private ones."""
  cases = _cases(row["public_test_cases"]) + _cases(row.get("private_test_cases") or [])
  metadata = row.get("metadata") or {}
  metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
  return _from_cases(cases, metadata.get("func_name"))


def _cases(value: Any) -> list[dict]:
  """Returns the list, given as it is, as JSON, or as base64 of zlib of a pickle of its JSON."""
  if not isinstance(value, str):
    return value
  if value.lstrip()[:1] == "[":
    return json.loads(value)
  try:
    return json.loads(_OnlyText(io.BytesIO(zlib.decompress(base64.b64decode(value)))).load())
  except (zlib.error, pickle.UnpicklingError, EOFError) as error:
    raise ValueError(f"private_test_cases cannot be decoded ({error})") from error


class _OnlyText(pickle.Unpickler):
  """Reads a pickle of text, which needs no class and no function; any other pickle could run code."""

  def find_class(self, module, name):
    raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _from_cases(cases: list[dict], fn_name: str | None) -> str:
  called = [case for case in cases if "func" in str(case.get("testtype") or case.get("type"))]
  if 0 < len(called) < len(cases):
    raise ValueError("some cases call a function and some read standard input")
  if called:
    fn_name = fn_name or called[0].get("fn_name") or (called[0].get("metadata") or {}).get("func_name")
    if not fn_name:
      raise ValueError("cases call a function that has no name")
  else:
    fn_name = None
  return _dump([case["input"] for case in cases], [case["output"] for case in cases], fn_name)


def _dump(inputs: list, outputs: list, fn_name: str | None) -> str:
  if len(inputs) != len(outputs):
    raise ValueError(f"{len(inputs)} inputs, but {len(outputs)} outputs")
  try:
    "".join(map(str, inputs)).encode()
  except UnicodeEncodeError as error:
    raise ValueError(f"an input is no text ({error.reason}), and no program could be given it") from None
  tests = dict(inputs=inputs, outputs=outputs) | (dict(fn_name=fn_name) if fn_name else {})
  return json.dumps(tests) if inputs else ""
