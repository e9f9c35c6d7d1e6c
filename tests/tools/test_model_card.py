"""The card says what the run says, and its head is what the hub's own reader takes."""

from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from grpojax.recipes import base, dapo
from grpojax.runtime import metrics
from grpojax.tools import model_card


@pytest.fixture
def exported(tmp_path):
  """A run of a model and data of the hub, exported after step 10 of 20."""
  config = dapo.get_config("local")
  config.model.path, config.data.path = "Qwen/Qwen2.5-0.5B-Instruct", "hf://openai/gsm8k@v1.2"
  with metrics.Writer(tmp_path) as writer:
    for step, accuracy in ((0, 0.25), (10, 0.5), (20, 0.9)):
      values = {"eval/pass@1": accuracy, "eval/pass@1_ci95": 0.031, "eval/clipped_ratio": 0.125}
      writer.write("eval", step, values)
  (tmp_path / "commands.txt").write_text("/home/me/bin/python -m grpojax.main --config=configs/dapo.py\n")
  source = tmp_path / "source"
  source.mkdir()
  return model_card.Exported(
    "mine", config, 10, {"jax": "0.10.2"}, tmp_path, source, False, "grpojax export --out=exported/mine"
  )


def cells(card: str, first: str) -> list[str]:
  """The row of a table that begins with `first`."""
  (line,) = [line for line in card.splitlines() if line.startswith(f"| {first} |")]
  return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_the_numbers_are_those_of_the_run_up_to_the_checkpoint(exported):
  card = model_card.text(exported)
  assert cells(card, "pass@1, %") == ["pass@1, %", "25.0 ± 3.1", "50.0 ± 3.1", "+25.0 ± 4.4"]
  assert cells(card, "truncated, %") == ["truncated, %", "12.5", "12.5", "+0.0"]
  assert "before (step 0) | after (step 10)" in card and "90.0" not in card
  assert "after 10 of 500 steps" in card
  assert "Split `test`, 256 questions at most, 4 completions each at temperature 1" in card


def test_the_recipe_the_formula_versions_and_commands_are_there(exported):
  card = model_card.text(exported)
  assert "    loss(θ) = Σ w · (− ppo_clip[high 0.28, low 0.2](ℓ, A))\n" in card
  assert "- A: zscore[ddof 1, eps 1e-06] = (R − mean) / (std + eps)." in card
  assert "`math:equivalent`" in cells(card, "reward")[1]
  assert cells(card, "recipe")[1] == "`dapo:local`, seed 0"
  assert cells(card, "jax") == ["jax", "0.10.2"]
  last = "    python -m grpojax.main --config=configs/dapo.py\n    grpojax export --out=exported/mine\n"
  assert card.endswith(last)


def test_the_hub_reads_the_head(exported):
  theirs = "---\nlicense: apache-2.0\nlanguage: [en]\ntags: [x]\n---\n# Theirs\n"
  (exported.source / "README.md").write_text(theirs)
  data = ModelCard(model_card.text(exported)).data
  assert data.base_model == "Qwen/Qwen2.5-0.5B-Instruct" and data.base_model_relation == "finetune"
  assert data.datasets == ["openai/gsm8k"] and data.pipeline_tag == "text-generation"
  assert data.license == "apache-2.0" and data.language == ["en"] and data.library_name == "transformers"
  assert data.tags == ["grpojax", "reinforcement-learning", "dapo"]
  adapters = ModelCard(model_card.text(exported._replace(adapters=True))).data
  assert adapters.base_model_relation == "adapter" and adapters.library_name == "peft"


def test_an_offline_run_says_what_it_learned_and_nothing_of_rewards(exported):
  with metrics.Writer(exported.records) as writer:
    writer.write("train", 10, {"loss": 1.0, "sft/loss": 1.0})
  card = model_card.text(exported)
  assert "after 10 of 500 steps of supervised fine-tuning" in card and "| reward |" not in card
  assert cells(card, "a step")[1].startswith("64 conversations")
  assert ModelCard(card).data.tags == ["grpojax", "supervised-fine-tuning", "dapo"]


def test_paths_of_a_machine_are_none_of_the_hub(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  Path("models/mine").mkdir(parents=True)
  for path in ("", "mine", "/models/mine", "models/mine", "~/models/mine", "data/gone.jsonl", "gs://b/mine"):
    assert model_card.hub_id(path) is None, path
  for path in ("hf://Qwen/Qwen3-0.6B@main", "Qwen/Qwen3-0.6B"):
    assert model_card.hub_id(path) == "Qwen/Qwen3-0.6B"


def test_a_run_of_the_small_model_without_evaluations_has_a_card(tmp_path):
  about = ("toy", base.get_config(), 3, {}, tmp_path, tmp_path, False, "grpojax export")
  card = model_card.text(model_card.Exported(*about))
  assert "a small model made from nothing" in card and "Held-out" not in card
  assert "a cold start of 1200 steps" in card
  assert ModelCard(card).data.base_model is None
