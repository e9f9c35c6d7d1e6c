"""The printed tables are those of the code."""

import subprocess
import sys

from objective_toys import MENU, RECIPES

from grpojax.tools import variants


def test_every_recipe_has_a_row_with_what_it_chooses():
  rows = {row["recipe"]: row for row in variants.recipes()}
  assert list(rows) == RECIPES
  assert rows["dapo"]["surrogate"] == "ppo_clip high=0.28 low=0.2"
  assert rows["dapo"]["filter"] == "mixed_groups; refill"
  assert rows["dapo"]["reward"].startswith("soft_overlong")
  assert rows["grpo"]["penalty"] == "kl_k3 beta=0.04"
  assert rows["lite_ppo"]["advantage"] == "center; batch_std ddof=1 eps=0.0001"
  assert rows["gspo"]["mismatch"] == "–"


def test_every_function_is_on_the_printed_menu():
  rows = variants.menu()
  assert [f"{row['slot']}.{row['function']}" for row in rows] == list(MENU)
  assert next(row["knobs"] for row in rows if row["function"] == "constant") == "budget"


def test_for_a_terminal_the_tables_are_as_narrow_as_it(monkeypatch, capsys):
  monkeypatch.setenv("COLUMNS", "80")
  monkeypatch.setattr(sys, "argv", ["grpojax variants"])
  variants.command()
  lines = capsys.readouterr().out.splitlines()
  assert max(map(len, lines)) <= 80
  first = [line.split()[0] for line in lines if line[:1].strip()]
  assert set(RECIPES) | set(MENU) <= set(first)
  page = " ".join(" ".join(lines).split())
  assert "gspo GSPO: one ratio per completion, so clipping drops whole completions. ratio: sequence" in page


def test_the_command_prints_tables_for_a_page():
  command = [sys.executable, "-m", "grpojax", "variants", "--markdown"]
  page = subprocess.run(command, capture_output=True, text=True, check=True).stdout
  tables = page.split("## ")[1:]
  assert [table.splitlines()[0] for table in tables] == ["Recipes", "Menu of the slots"]
  for table in tables:
    lines = [line.replace("\\|", "") for line in table.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
