"""The README: short, its recipe is the file, and its diagram of one step is what a batch passes."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from grpojax import train
from grpojax.rollout.prefetch import Prefetcher
from grpojax.train.session import Session

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
DIAGRAM = TEXT.partition("## One step")[2].split("```")[1]
FILES = re.findall(r"[\w/]+\.py", DIAGRAM)
PASSED = [path.removeprefix("grpojax/") for path in FILES if not path.startswith("configs/")]


def test_it_is_short_and_has_the_recipe_as_it_is():
  assert len(TEXT.splitlines()) <= 150
  assert f"```python\n{(ROOT / 'configs' / 'gspo.py').read_text()}```" in TEXT


def test_the_diagram_has_at_most_eight_files_and_each_exists():
  assert len(PASSED) == len(set(PASSED)) <= 8
  assert all((ROOT / "grpojax" / path).exists() for path in PASSED), PASSED


@pytest.mark.slow
def test_a_batch_passes_the_files_of_the_diagram_in_their_order(cache, tmp_path, monkeypatch):
  config = importlib.import_module("grpojax.recipes.gspo").get_config("tiny")
  config.update(cache_dir=str(cache), verbose=False, steps=1)
  config.mesh.data = 1
  called = {}  # in order of the first call

  def note(frame, event, argument):
    called.setdefault(frame.f_code.co_filename)

  def noted(on, call):
    def wrapped(*args, **kwargs):
      sys.setprofile(note if on else None)
      return call(*args, **kwargs)

    return wrapped

  monkeypatch.setattr(Prefetcher, "next", noted(True, Prefetcher.next))
  monkeypatch.setattr(Session, "push", noted(False, Session.push))
  try:
    train.run(train.prepare(config, tmp_path / "run"))
  finally:
    sys.setprofile(None)
  wanted = [str(ROOT / "grpojax" / path) for path in PASSED]
  assert wanted[0].endswith("loop.py")  # which calls all others
  assert [path for path in called if path in wanted[1:]] == wanted[1:]
