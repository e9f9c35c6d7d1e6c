"""The documentation runs: every flag in docs/slots.md builds, and no function is left out."""

import ast
import contextlib
import importlib
import shlex
from pathlib import Path

import pytest

from configs import base
from grpojax import config as config_lib

build = importlib.import_module("grpojax.objective.build")  # the package has a function of that name
PAGE = (Path(__file__).parents[1] / "docs" / "slots.md").read_text()
LINES = [line.partition("  #")[0].strip() for line in PAGE.splitlines() if line.startswith("    --")]


@pytest.mark.parametrize("line", LINES)
def test_flags_of_the_slots_page_make_a_legal_objective(line):
  config = base.get_config()
  for flag in shlex.split(line):
    key, value = flag.removeprefix("--config.").split("=", 1)
    with contextlib.suppress(ValueError, SyntaxError):  # words are strings
      value = ast.literal_eval(value)
    *path, leaf = key.split(".")
    node = config
    for part in path:
      node = node[part]
    node[leaf] = value
  config_lib.check(config, devices=1)


@pytest.mark.parametrize("slot", build.SLOTS + build.LISTS)
def test_every_function_of_a_slot_is_on_the_page(slot):
  missing = [name for name in build.functions(slot) if name not in PAGE]
  assert not missing, f"docs/slots.md does not show {', '.join(missing)} of {slot}"
