"""Files and folders from outside of a chain: which stages they make stale, and by which name."""

import copy
import os
import shutil

import pytest
from ml_collections import ConfigDict
from pipeline_toys import GROW, LOOK, RL, finish, whats

from grpojax.config import commandline
from grpojax.tools.pipeline import manifest, stages
from grpojax.tools.pipeline.manifest import DONE, STALE


def of_files(folder):
  """A chain on files from outside: a base, questions, a judge's folder and conversations."""
  for name in ("questions", "base", "judge", "tests"):
    (folder / name).mkdir()
  for name in ("questions/a.jsonl", "base/config.json", "base/w", "judge/w", "tests/1.jsonl", "chats.jsonl"):
    (folder / name).write_text(name)
  at = [f"--config.data.path={folder}/questions", f"--config.data.test_path={folder}/tests/*.jsonl"]
  c = commandline.config_of(["--config=base:local", f"--config.model.path={folder}/base", *at])
  learn = dict(name="learn", kind="sft", init="base", sft=dict(path=str(folder / "chats.jsonl")))
  judged = dict(reward=dict(judge=dict(fn="learned:score", path=str(folder / "judge"))))
  with c.unlocked():
    c.stages = [ConfigDict(one) for one in (learn, LOOK, RL | judged, GROW)]
  return stages.read(c)


EDITS = {  # what is edited -> the stage that says so, and its sentence
  "chats.jsonl": ("learn", "config.sft.path: chats.jsonl has changed"),
  "questions/a.jsonl": ("learn", "config.data.path: a.jsonl has changed"),
  "questions/b.jsonl": ("grow", "config.data.path: b.jsonl is new"),
  "tests/1.jsonl": ("learn", "config.data.test_path: 1.jsonl has changed"),
  "judge/w": ("rl", "config.reward.judge.path: w has changed"),
  "base/w": ("learn", "config.model.path: w has changed"),
}
OF_EDIT = {  # else all are stale
  "chats.jsonl": {"learn", "look", "rl"},
  "judge/w": {"rl"},
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_file_from_outside_makes_stale_what_reads_it_and_says_so_by_name(tmp_path, name):
  found, workdir = of_files(tmp_path), tmp_path / "run"
  finish(found, workdir)
  os.utime(tmp_path / "chats.jsonl", (1, 1))
  assert set(whats(found, workdir).values()) == {DONE}  # touched, and the same
  (tmp_path / name).write_text("edited")
  states = manifest.states(found, workdir)
  stale = {one for one, state in states.items() if state.what == STALE}
  stage, sentence = EDITS[name]
  assert stale == OF_EDIT.get(name, {"learn", "look", "rl", "grow"}) and sentence in states[stage].why
  (tmp_path / name).unlink()
  assert ("has gone" in manifest.states(found, workdir)[stage].why) == ("b.jsonl" not in name)


def test_a_name_on_the_hub_counts_as_it_is_and_a_folder_wherever_it_lies(tmp_path):
  (tmp_path / "here").mkdir()
  found = of_files(tmp_path / "here")
  hub = [one._replace(config=copy.deepcopy(one.config)) for one in found]
  for one in hub:
    one.config.model.path = "Qwen/Qwen2.5-0.5B"
  files = manifest.describe(hub[0], tmp_path)["files"]
  assert files["config.model.path"] == "Qwen/Qwen2.5-0.5B"
  shutil.copytree(tmp_path / "here" / "base", tmp_path / "moved")
  before = manifest.describe(found[0], tmp_path)
  for one in found:
    one.config.model.path = str(tmp_path / "moved")
  assert manifest.describe(found[0], tmp_path) == before
  whole = [name for name in before["files"] if name.startswith("config.model.path")]
  assert whole == ["config.model.path: config.json", "config.model.path: w"]
