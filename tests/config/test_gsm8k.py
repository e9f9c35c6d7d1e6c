"""The recipes of GSM8K: legal on their machines, found on a hub by their ids, trained on eight devices."""

import json
import re

import hub_server
import jax
import pytest
import subprocesses
import test_local

from grpojax.config import check
from grpojax.config.commandline import config_of
from grpojax.recipes import gemma_gsm8k, qwen_gsm8k
from grpojax.runtime import metrics
from grpojax.tools.podcheck import programs
from grpojax.train import setup
from grpojax.train.auto import Machine

MODELS = {qwen_gsm8k: "Qwen/Qwen2.5-0.5B-Instruct", gemma_gsm8k: "google/gemma-3-1b-it"}
each = pytest.mark.parametrize("recipe", MODELS, ids=["qwen", "gemma"])
CARD = """---
configs:
- config_name: main
  data_files:
  - {split: train, path: main/train.jsonl}
  - {split: test, path: main/test.jsonl}
- config_name: socratic
  data_files:
  - {split: train, path: socratic/train.jsonl}
---
"""


def gsm8k(first: int, rows: int) -> str:
  """Rows as the dataset has them: the answer is a solution that ends in "#### 72"."""
  asked = [
    dict(question=f"Ann has {n} apples and buys 2.  How many?", answer=f"{n} + 2 = {n + 2}\n#### {n + 2}")
    for n in range(first, first + rows)
  ]
  return "".join(f"{json.dumps(row)}\n" for row in asked)


@each
def test_every_machine_is_legal_and_only_a_known_one(recipe):
  for machine, devices in dict(gpu=1, v5e8=8, v5e1=1).items():
    c = recipe.get_config(machine)
    check.check(c, devices)
    assert c.model.path == MODELS[recipe] and c.data.path == c.data.test_path == "openai/gsm8k"
    assert c.eval.samples == c.rollout.group_size  # or another program is compiled
    assert c.rollout.prompts * c.rollout.group_size % c.rollout.slots == 0
  with pytest.raises(ValueError, match="The machine 'v4' is unknown to qwen_gsm8k; choose one of gpu, v5e8"):
    recipe.get_config("v4")


def test_adapters_have_ten_times_the_learning_rate_of_all_parameters():
  adapters, whole = gemma_gsm8k.get_config("v5e1"), gemma_gsm8k.get_config("v5e8")
  assert adapters.lora.rank and not whole.lora.rank
  assert adapters.optimizer.learning_rate == pytest.approx(10 * whole.optimizer.learning_rate)


@each
def test_model_and_both_splits_come_from_the_hub_by_their_ids(recipe, tmp_path, monkeypatch):
  folder = test_local.make_folder(tmp_path / "model")  # of random weights, under the released model's name
  files = {f"{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}
  rows = {"README.md": CARD, "socratic/train.jsonl": gsm8k(500, 3)}
  rows |= {"main/train.jsonl": gsm8k(0, 90) + gsm8k(100, 1), "main/test.jsonl": gsm8k(100, 70)}
  models, datasets = {MODELS[recipe]: hub_server.Repo(files)}, {"openai/gsm8k": hub_server.Repo(rows)}
  with hub_server.serve(models, datasets) as (endpoint, _):
    hub_server.use(monkeypatch, endpoint, tmp_path)
    c = recipe.get_config("gpu")
    c.cache_dir = str(tmp_path / "cache")
    c.rollout.max_tokens = 64  # the model is made for 512 tokens
    data = setup.prepare(c, tmp_path / "run").data
  assert len(data.train.records) == 90  # without the one that the test split has, and without "socratic"
  assert len(data.held_out.records) == 70
  first = data.train.records[0]
  assert re.search(r"Ann has (\d+) apples", first["question"])
  assert first["answer"] == str(int(re.findall(r"\d+", first["question"])[0]) + 2)
  assert "\\boxed{}" in data.tokenizer.decode(data.train.prompts[0])


@pytest.mark.slow
@each
@pytest.mark.parametrize("machine, devices", [("gpu", 1), ("v5e8", 8), ("v5e1", 1)])
def test_all_programs_can_be_traced_at_the_released_models_shapes(recipe, machine, devices, tmp_path):
  """As the pod check does before it compiles; `float32` parameters are cut over all chips of a v5e-8."""
  c = recipe.get_config(machine)
  plan = programs.plan(c, Machine(jax.devices()[:devices], 16e9), tmp_path)
  update = programs.update(plan)
  for program in (update, programs.log_probs(plan), *programs.sampling(plan).values()):
    assert program.lowered.out_info
  assert plan.slots == c.rollout.slots and plan.pieces == c.microbatches
  held, stored = (
    programs.arguments(update)["parameters"],
    sum(x.size for x in jax.tree.leaves(plan.model.shapes)),
  )
  assert held == pytest.approx(4 * stored / devices, rel=0.01) or plan.model.lora


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["v5e8", "v5e1"])
def test_the_machines_settings_train_at_a_fraction_of_every_size(machine, tmp_path):
  """A mesh of eight, and the sampler's own; adapters on frozen parameters.  A model of random weights."""
  folder = test_local.make_folder(tmp_path / "qwen")
  for name, text in dict(train=gsm8k(0, 40), test=gsm8k(100, 30)).items():
    (tmp_path / f"{name}.jsonl").write_text(text)
  sizes = {
    "steps": 2, "logprob_chunk": 16, "rollout.max_tokens": 16, "rollout.slots": 32, "rollout.segment": 8,
    "rollout.prompts": 16, "eval.prompts": 16, "data.prompt_budget": 240, "rollout.prefill_chunk": 240,
    "mesh.cpu_devices": 8 if machine == "v5e8" else 1, "verbose": False,
    "cache_dir": subprocesses.cache_in(tmp_path / "cache"),
    "model.path": folder, "data.path": tmp_path / "train.jsonl", "data.test_path": tmp_path / "test.jsonl",
    "data.layout": "gsm8k", "reward.accuracy.fn": "study_toys:coin",
    "model.dtype": "float32", "model.param_dtype": "float32",  # CPUs' compiler fails on sums in bfloat16
  }  # fmt: skip
  flags = [f"--config.{key}={value}" for key, value in sizes.items()]
  recipe = f"configs/{'qwen' if machine == 'v5e8' else 'gemma'}_gsm8k.py:{machine}"
  done = subprocesses.run_one("grpojax.main", f"--config={recipe}", f"--workdir={tmp_path / 'run'}", *flags)
  assert done.code == 0, done.err
  if machine == "v5e8":
    assert "mesh data 1 x fsdp 8" in done.out and "sampler: mesh data 8 x fsdp 1 x tensor 1" in done.out
  steps = [record for record in metrics.read(tmp_path / "run") if record["kind"] == "train"]
  assert len(steps) == 2 and all(step["grad_norm"] > 0 for step in steps)


def test_the_flags_of_the_docs_larger_model_are_legal():
  flags = ["--config=configs/qwen_gsm8k.py:v5e8", "--config.model.path=Qwen/Qwen2.5-1.5B-Instruct"]
  check.check(config_of(flags), devices=8)
