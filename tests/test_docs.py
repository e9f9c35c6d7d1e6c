"""The documentation runs: every flag in docs/slots.md builds, and no function is left out."""

import importlib
import inspect
import re
import shlex
from pathlib import Path

import pytest

from grpojax import rewards
from grpojax.config import check as config_lib
from grpojax.config import commandline
from grpojax.rewards import sandbox

build = importlib.import_module("grpojax.objective.build")  # the package has a function of that name
PAGE = (Path(__file__).parents[1] / "docs" / "slots.md").read_text()
LINES = [line.partition("  #")[0].strip() for line in PAGE.splitlines() if line.startswith("    --")]


@pytest.mark.parametrize("line", LINES)
def test_flags_of_the_slots_page_make_a_legal_objective(line):
  config = commandline.config_of(["--config=base", *shlex.split(line)])
  config_lib.check(config, devices=1)
  if "code:" in line and sandbox.obstacle():
    pytest.skip(f"needs bubblewrap: {sandbox.obstacle()}")
  if not config.env.name:  # which brings its own
    rewards.build(config.reward)


@pytest.mark.parametrize("module", ["rules", "math", "code", "countdown", "shaping"])
def test_every_reward_is_on_the_page(module):
  found = vars(importlib.import_module(f"grpojax.rewards.{module}"))
  fns = [n for n, f in found.items() if inspect.isfunction(f) and not n.startswith("_") and _is_reward(f)]
  assert fns and all(re.search(rf"\b{module}:{name}\b", PAGE) for name in fns), fns


def _is_reward(fn) -> bool:
  return next(iter(inspect.signature(fn).parameters), "") in ("sample", "samples", "group")


@pytest.mark.parametrize("slot", build.MENUS)
def test_every_function_of_a_slot_is_on_the_page(slot):
  missing = [name for name in build.functions(slot) if name not in PAGE]
  assert not missing, f"docs/slots.md does not show {', '.join(missing)} of {slot}"
