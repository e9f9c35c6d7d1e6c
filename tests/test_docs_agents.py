"""The page on environments runs, in files of its own; its table has every name and every knob."""

import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

from grpojax.config import check
from grpojax.data import templates, text
from grpojax.rollout.envs import build
from grpojax.rollout.envs.interface import Turn
from grpojax.train import setup

PAGE = (Path(__file__).parents[1] / "docs" / "agents.md").read_text()
ENVIRONMENT, CHECK, TOOLS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def guess(tmp_path, monkeypatch):
  """The page's environment, in a folder that Python imports from."""
  (tmp_path / "guess.py").write_text(ENVIRONMENT)
  monkeypatch.syspath_prepend(tmp_path)
  importlib.invalidate_caches()
  yield importlib.import_module("guess").Guess
  sys.modules.pop("guess", None)


def test_it_is_about_twenty_lines():
  assert len([line for line in ENVIRONMENT.splitlines() if line]) <= 24


def test_the_check_of_the_page_passes(guess):
  exec(compile(CHECK, "agents.md", "exec"), {})


def test_the_prompts_of_the_pages_tools_describe_them():
  exec(compile(TOOLS, "agents.md", "exec"), found := {})
  config = found["get_config"]("tiny")
  check.check(config, devices=1)
  tokenizer, form = text.load_tokenizer(), setup.prompt_form(config, text.load_tokenizer())
  (tokens,) = templates.encode(form, tokenizer, [dict(question="2+3=?")])
  prompt = tokenizer.decode(tokens)
  assert '"name": "calculator"' in prompt and prompt.endswith("2+3=?<|assistant|>")
  assert len(tokens) < config.data.prompt_budget - 48


def test_no_text_and_no_number_breaks_it(guess):
  game = guess()
  game.reset({"number": "7"}, 0)
  for said in ("", "\n", "٣", "-1", "1.5", "9" * 5000, "fifty", "\ud800"):
    assert not game.step(said).valid
  assert game.step("0").text == "higher" and game.step("999999999").text == "lower"


def test_the_table_has_every_environment_with_every_knob():
  table = PAGE.partition("## Ready ones")[2].partition("## ")[0]
  rows = dict(re.findall(r"^\| `(\w+)[`:](.*)\|$", table, re.MULTILINE))
  for name in build.names():
    make = build.find(name)
    knobs = [knob for knob in inspect.signature(make).parameters if knob not in ("source", "game")]
    assert name in rows and set(re.findall(r"`(\w+)`", rows[name].split("|")[-1])) == set(knobs), name


def test_the_table_has_every_field_of_a_turn():
  table = PAGE.partition("| of a `Turn` | |")[2].partition("\n\n")[0]
  assert set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines()[2:]))) == set(
    Turn._fields
  )
