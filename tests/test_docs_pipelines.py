"""The commands of the page on pipelines run, in its order, and leave what it says."""

import re
import shlex
from pathlib import Path

import pytest
import subprocesses

from grpojax.data import messages, pairs

PAGE = (Path(__file__).parents[1] / "docs" / "pipelines.md").read_text()
COMMANDS = "".join(re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)).splitlines()
PAIR, CHATS = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


def test_the_pages_conversations_are_read(tmp_path):
  (tmp_path / "chats.jsonl").write_text(CHATS)
  answers = [row["demonstration"] for row in messages.read(tmp_path / "chats.jsonl")]
  assert answers == ["2+3=5\n#5", "4*2=8\n#8"]
  (tmp_path / "pairs.jsonl").write_text(PAIR)
  assert pairs.read(tmp_path / "pairs.jsonl") == [
    dict(question="2+3=?", chosen="2+3=5\n#5", rejected="2+3=6\n#6")
  ]


def test_every_name_of_the_tables_is_one(tmp_path):
  from grpojax.config import recipe, schema
  from grpojax.tools.pipeline import rejection, stages

  table = PAGE.partition("| key | |")[2].partition("\n\n")[0]
  assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == set(stages.OWN)
  kinds = next(row for row in table.splitlines() if row.startswith("| `kind`"))
  assert set(re.findall(r"`(\w+)`", kinds.split("|")[2])) == set(stages.KINDS)
  assert all(f"sample/{name}`" in PAGE for name in rejection.COUNTS[1:-1])
  by = PAGE.partition("| `config.sample.by` |")[2].partition("\n\n")[0]
  assert tuple(re.findall(r"^\| `(\w+)`", by, re.MULTILINE)) == schema.KEYS["sample.by"].choices
  pipelines = PAGE.partition("| | |")[2].partition("\n\n")[0]
  assert set(re.findall(r"^\| `(\w+)`", pipelines, re.MULTILINE)) == set(recipe.names(recipe.PIPELINES))


@pytest.mark.slow
def test_the_commands_run_in_the_pages_order(cache, tmp_path):
  (tmp_path / "chats.jsonl").write_text(CHATS * 8)
  said = {}
  for command in COMMANDS:
    program, *words = shlex.split(command)
    words = [re.sub(r"=(runs/|chats)", rf"={tmp_path}/\1", word) for word in words]
    quiet = f"--config.cache_dir={cache}", "--config.verbose=False", "--config.mesh.data=1"
    done = subprocesses.run_one(program, *words, *quiet)
    assert done.code == 0, f"{command}: {done.out}{done.err}"
    said[command] = done.out
  first, dry, stale, anew, *_ = said.values()
  assert "Kept" not in first and (tmp_path / "runs" / "r1_zero" / "report.html").is_file()
  assert dry.count(": done") == 4 and "stale" not in dry
  assert "rl (rl, from base): stale: config.steps: 2 -> 3" in stale
  assert "'rl', which it stands on, is stale" in stale
  assert "stage 'rl' was stale and is now" in anew
  assert (tmp_path / "runs" / "chats" / "checkpoints" / "4").is_dir()
