"""Tools: calls in the forms of chat templates, what is wrong with them, and what tools answer."""

import json
from typing import Literal

import pytest

from grpojax.rewards import sandbox
from grpojax.rollout.envs import build, calls, toolbox
from grpojax.rollout.envs.calls import Call, CallError
from grpojax.rollout.envs.tools import Tools

OBSTACLE = sandbox.obstacle()
needs_sandbox = pytest.mark.skipif(bool(OBSTACLE), reason=f"needs bubblewrap: {OBSTACLE}")
QUESTION = {"question": "What is 17*23?", "answer": "391"}


def weather(city: str, days: int = 1, unit: Literal["C", "F"] = "C", at: list[float] | None = None) -> dict:
  """Tells the weather.

  Not this.
  """
  if city == "Atlantis":
    raise LookupError(f"no city {city}")
  return {"city": city, "days": days, "unit": unit, "at": at}


def silent() -> None:
  """Returns nothing."""


def paired() -> dict:
  """Returns what is no JSON."""
  return {(1, 2): 3}


def broken() -> str:
  """Is at fault itself."""
  raise toolbox.Unavailable("the service is down")


def untyped(x):
  return x


def long(n: int) -> str:
  """Returns a long text."""
  return "ab" * n


def written(name: str, **arguments) -> str:
  return f"<tool_call>\n{json.dumps(dict(name=name, arguments=arguments))}\n</tool_call>"


NO_JSON = "the call is no JSON (Expecting value: line 1 column 1 (char 0))"
CALL = Call("add", {"a": 1, "b": [2, "x"]})
OBJECT = '{"name": "add", "arguments": {"a": 1, "b": [2, "x"]}}'


@pytest.mark.parametrize("text", [
  f"<tool_call>\n{OBJECT}\n</tool_call>", f"Let me add.\n<tool_call>{OBJECT}</tool_call> and then",
  f"<tool_call>{OBJECT}", f"<tool_call>{OBJECT}</tool_call>\n<tool_call>{{}}</tool_call>",
  OBJECT, f"  {OBJECT}\n", f"<|python_tag|>{OBJECT}",
  f"[TOOL_CALLS][{OBJECT}]", f"[TOOL_CALLS] [{OBJECT}, {OBJECT}]", OBJECT.replace("arguments", "parameters"),
])  # fmt: skip
def test_a_call_is_read_in_every_form(text):
  assert calls.read(text) == CALL


@pytest.mark.parametrize(
  "text", ["", "391", "The answer is #391.", "[1, 2]", 'see {"name": "x"}', "tool_call"]
)
def test_a_text_without_a_call_has_none(text):
  assert calls.read(text) is None


@pytest.mark.parametrize("text, words", [
  ("<tool_call>", "no JSON"), ("{", "no JSON"), ("<tool_call>add(1)</tool_call>", "no JSON"),
  ("{'name': 'add'}", "no JSON"), ("<tool_call>" + "[" * 100_000, "no JSON"), ("[TOOL_CALLS][]", "the form"),
  ('{"name": 3}', "the form"), ('{"arguments": {}}', "the form"), ("<tool_call>7</tool_call>", "the form"),
  ('{"name": "add", "arguments": [1]}', "an object"), (f"{OBJECT} {OBJECT}", "text follows"),
  ('{"name": "\\ud800"}', "half a character"),
])  # fmt: skip
def test_a_call_that_cannot_be_read_says_why(text, words):
  with pytest.raises(CallError, match=words):
    calls.read(text)


def test_a_signature_becomes_what_templates_take():
  assert calls.schema(weather) == {
    "type": "function",
    "function": {
      "name": "weather",
      "description": "Tells the weather.",
      "parameters": {
        "type": "object",
        "properties": {
          "city": {"type": "string"},
          "days": {"type": "integer"},
          "unit": {"type": "string", "enum": ["C", "F"]},
          "at": {"type": "array", "items": {"type": "number"}},
        },
        "required": ["city"],
      },
    },
  }
  with pytest.raises(ValueError, match="untyped: annotate x"):
    calls.schema(untyped)


@pytest.mark.parametrize("arguments, words", [
  (dict(), "weather needs city"),
  (dict(city="Rome", day=1), "weather has no day; it takes city, days, unit, at"),
  (dict(city=7), "city of weather is str, and not 7"),
  (dict(city="Rome", days="2"), 'days of weather is int, and not "2"'),
  (dict(city="Rome", days=True), "days of weather is int"),
  (dict(city="Rome", days=1.5), "days of weather is int"),
  (dict(city="Rome", unit="K"), 'one of "C", "F"'), (dict(city="Rome", at=["x"]), "at of weather"),
])  # fmt: skip
def test_arguments_are_what_the_signature_says(arguments, words):
  with pytest.raises(CallError, match=words):
    calls.bind(weather, arguments)


def test_fitting_arguments_pass():
  for arguments in (
    dict(city="Rome"),
    dict(city="Rome", at=None),
    dict(city="Rome", at=[1, 2.5], days=3, unit="F"),
  ):
    assert calls.bind(weather, arguments) == arguments


def tools_of(*names: str, **knobs) -> Tools:
  tools = Tools(
    [name if name in ("calculator", "python") else f"{__name__}:{name}" for name in names], **knobs
  )
  tools.reset(QUESTION, 0)
  return tools


def test_an_episode_of_calls_ends_with_an_answer_that_is_scored():
  for answer, reward in (("It is\n#391", 1.0), ("#390", 0.0), ("no idea", 0.0)):
    tools = tools_of("calculator")
    first = tools.step("I use a tool. " + written("calculator", expression="17*23"))
    assert first.text == "391" and first.role == "tool" and not first.ended and first.valid
    last = tools.step(answer)
    assert last.done and last.reward == reward and last.valid


def test_the_tools_are_told_as_templates_take_them_and_the_question_is_the_row():
  knobs = dict(tools=["calculator", f"{__name__}:weather"], max_steps=3)
  assert build.schemas("tools", knobs) == (calls.schema(toolbox.calculator), calls.schema(weather))
  assert Tools(**knobs).reset(QUESTION, 0).text == "What is 17*23?"
  assert build.schemas("frozen_lake", {}) == build.schemas("", {}) == ()


@pytest.mark.parametrize("action, text, valid", [
  (written("weather", city="Rome"), '{"city": "Rome", "days": 1, "unit": "C", "at": null}', True),
  (written("weather", city="Atlantis"), "error: LookupError: no city Atlantis", True),
  (written("weather", city=1), "error: city of weather is str, and not 1", False),
  (written("nothing"), "error: there is no tool nothing, only weather, silent, paired", False),
  (written("silent"), "null", True),
  ("<tool_call>f(x)</tool_call>", f"error: {NO_JSON}", False),
  (written("paired"), "error: TypeError: keys must be str, int, float, bool or None, not tuple", True),
])  # fmt: skip
def test_what_a_call_is_answered_with(action, text, valid):
  turn = tools_of("weather", "silent", "paired").step(action)
  assert turn.text == text and turn.role == "tool"
  assert turn.valid == valid and not turn.ended and turn.reward == 0
  assert turn.feedback == ("" if not text.startswith("error: ") else text.removeprefix("error: "))


def test_long_results_are_cut():
  tools = tools_of("long")
  turn = tools.step('{"name": "long", "arguments": {"n": 5000}}')
  assert turn.text == "ab" * 1000 + "\n... 6000 characters left out ...\n" + "ab" * 1000
  assert tools.step('{"name": "long", "arguments": {"n": 2000}}').text == "ab" * 2000


def test_calls_without_end_are_truncated():
  tools = tools_of("calculator", max_steps=3)
  turns = [tools.step(written("calculator", expression="1")) for _ in range(3)]
  assert [turn.truncated for turn in turns] == [False, False, True]


def test_a_tool_that_is_itself_at_fault_fails_the_episode():
  with pytest.raises(toolbox.Unavailable, match="service is down"):
    tools_of("broken").step(written("broken"))


@pytest.mark.parametrize("expression, value", [
  ("17*23", "391"), ("(1+2)*3-4", "5"), ("-7//2", "-4"), ("7 % 4", "3"), ("2**10", "1024"),
  ("2^-2", "1/4 = 0.25"),
  ("0.1+0.2", "3/10 = 0.3"), ("1e3", "1000"), ("1/3", "1/3 = 0.333333333333"), ("+5", "5"),
])  # fmt: skip
def test_the_calculator_is_exact(expression, value):
  assert toolbox.calculator(expression) == value


@pytest.mark.parametrize("expression", [
  "", "1+", "x", "f(1)", "'a'*3", "True", "1 if 1 else 2", "__import__('os')", "9**9**9", "2**0.5",
  "1/0", "0**-1", "-" * 100_000 + "1", "(" * 199 + "-" * 600 + "1" + ")" * 199,
  "(2**1000)**1000", "1_000**999", "*".join(["9" * 900] * 8), "(" * 500 + "1" + ")" * 500, "[1][0]", "1<2",
])  # fmt: skip
def test_the_calculator_refuses_what_is_no_sum_or_too_large(expression):
  turn = tools_of("calculator").step(written("calculator", expression=expression))
  assert turn.text.startswith("error: ") and turn.valid


TRACEBACK = "1\nTraceback (most recent call last):\n  File \"program\", line 2, in <module>\nKeyError: 'z'"


@needs_sandbox
@pytest.mark.parametrize("code, text", [
  ("print(6 * 7)", "42"), ("", ""), ("import sys; print(1); sys.exit(3); print(2)", "1"),
  ("print(1)\nraise KeyError('z')", TRACEBACK),
  ("if __name__ == '__main__': print('main')", "main"),
])  # fmt: skip
def test_python_prints_what_the_program_prints_and_how_it_ended(code, text):
  assert toolbox.python(code) == text


@needs_sandbox
@pytest.mark.slow
@pytest.mark.parametrize(
  "code", ["while True: pass", "x = bytearray(2 << 30)\nprint('big')", "import os\nos._exit(1)"]
)
def test_python_that_takes_too_much_says_so(code):
  assert "too much memory" in toolbox.python(code) or "MemoryError" in toolbox.python(code)


def test_python_that_cannot_start_fails_the_episode(monkeypatch):
  def no_sandbox(*_, **__):
    raise RuntimeError("the sandbox did not start")

  monkeypatch.setattr(sandbox, "run", no_sandbox)
  with pytest.raises(toolbox.Unavailable, match="did not start"):
    tools_of("python").step(written("python", code="1"))


@pytest.mark.parametrize("knobs, words", [
  (dict(tools=["calculator", "calculator"]), "two have the same name"),
  (dict(tools=["hammer"]), "no tool 'hammer'"), (dict(tools=["no_module:f"]), "no tool 'no_module:f'"),
  (dict(tools=[f"{__name__}:untyped"]), "annotate x"), (dict(max_steps=0), "max_steps = 0"),
  (dict(reward={"accuracy": {"fn": "rules:nothing"}}), "rules:nothing"), (dict(hammer=1), "has no hammer"),
])  # fmt: skip
def test_wrong_knobs_are_refused(knobs, words):
  with pytest.raises(ValueError, match=words):
    build.check("tools", knobs, 1.0)


def test_python_is_refused_where_no_sandbox_runs(monkeypatch):
  monkeypatch.setattr(sandbox, "obstacle", lambda: "bwrap is not installed")
  with pytest.raises(ValueError, match="bwrap is not installed"):
    build.check("tools", dict(tools=["python"]), 1.0)
