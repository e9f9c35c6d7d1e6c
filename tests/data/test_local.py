"""A checkpoint folder and a file on disk: the README's commands, from there to a folder again."""

import json
import random
from pathlib import Path

import data_toys
import hub_server
import jax
import numpy as np
import pytest
import subprocesses
from model_folders import mesh

from grpojax import models
from grpojax.config.workdir import Run
from grpojax.data import pipeline
from grpojax.models import hf
from grpojax.recipes import base
from grpojax.runtime import hub, metrics
from grpojax.tools import export
from grpojax.train import manifest, setup
from grpojax.train import policy as policy_lib

QWEN2 = dict(
  model_type="qwen2", architectures=["Qwen2ForCausalLM"], hidden_size=32, num_hidden_layers=2,
  num_attention_heads=4, num_key_value_heads=2, intermediate_size=64, max_position_embeddings=512,
  rms_norm_eps=1e-6, rope_theta=10000.0, tie_word_embeddings=True, hidden_act="silu", dtype="bfloat16",
)  # fmt: skip

REWARDS = dict(  # a random policy is never right: let it learn to write letters
  accuracy=dict(fn="math:equivalent", form="boxed", workers=1),
  letters=dict(fn="shaping:language_consistency"),
)


def make_folder(path: Path) -> Path:
  """A Qwen2 of random weights with a byte-level tokenizer, as save_pretrained leaves them."""
  bare, tokenizer = path.with_name("bare"), data_toys.tokenizer()
  tokenizer.save_pretrained(bare)
  (bare / "config.json").write_text(json.dumps(QWEN2 | dict(vocab_size=272)))  # more than the tokenizer has
  model = models.from_spec(models.from_folder(bare))
  params = model.init(jax.random.key(0))
  export.write_folder(params, model.spec, bare, path, 20_000, "bfloat16")
  return path


def make_file(path: Path) -> Path:
  rng = random.Random(0)
  pairs = [(rng.randrange(50), rng.randrange(50)) for _ in range(60)]
  rows = [dict(prompt=f"What is {a} + {b}?", answer=str(a + b)) for a, b in pairs]
  return data_toys.write(path, [*rows, b"not json", dict(prompt="No answer?")])


@pytest.mark.slow
def test_from_a_folder_and_a_file_to_a_folder(cache, tmp_path):
  folder, file = make_folder(tmp_path / "qwen"), make_file(tmp_path / "train.jsonl")
  workdir, out = tmp_path / "run", tmp_path / "out"
  small = dict(
    steps=2, updates_per_rollout=1, cache_dir=cache, verbose=False,
    **{"rollout.prompts": 4, "rollout.group_size": 4, "rollout.max_tokens": 16, "data.prompt_budget": 160,
       "eval.prompts": 4, "optimizer.learning_rate": 0.1,
       "optimizer.warmup_steps": 0, "dynamic_sampling.enabled": False},
  )  # fmt: skip
  command = (
    "grpojax.main",
    "--config=configs/dapo.py:local",
    f"--config.model.path={folder}",
    f"--config.data.path={file}",
    f"--workdir={workdir}",
    f"--config.reward={REWARDS}",
    "--config.objective.select={}",
    *(f"--config.{key}={value}" for key, value in small.items()),
  )
  done = subprocesses.run_one(*command)
  assert done.code == 0, done.err
  assert "rollout.slots=16, microbatches=4, logprob_chunk=16, remat=full" in done.out, done.out
  assert "2 malformed (the first is train.jsonl:61: " in done.out, done.out
  assert "held_out: " in done.out
  records = [r for r in metrics.read(workdir) if r["kind"] == "train"]
  assert [r["step"] for r in records] == [1, 2]
  assert all(r["grad_norm"] > 0 for r in records)
  assert all(r["rewards/accuracy/failed"] == r["rewards/accuracy/abstained"] == 0 for r in records)

  done = subprocesses.run_one(*command, "--config.mesh.cpu_devices=2")  # where other values are chosen
  assert done.code == 0 and "mesh.data=2" in done.out and "finished at step 2" in done.out, done.err

  flags = f"--workdir={workdir}", f"--out={out}", "--dtype=float32"
  done = subprocesses.run_one("grpojax", "export", *flags)
  assert done.code == 0, done.err
  assert "after step 2" in done.out
  model = models.from_spec(models.from_folder(out))
  before, after = (hf.load(path, model, mesh()) for path in (folder, out))
  moved = jax.tree.map(lambda a, b: not np.array_equal(a, b), before, after)
  assert all(jax.tree.leaves(moved))  # a learning rate of 0.1 leaves nothing where it was
  assert _tokenizer(folder).get_vocab() == _tokenizer(out).get_vocab()


def _tokenizer(folder):
  from transformers import AutoTokenizer

  return AutoTokenizer.from_pretrained(folder, local_files_only=True)


@pytest.mark.parametrize(
  ("flag", "sentence"),
  [
    ("--config.model.path=/nowhere", "config.model.path = '/nowhere' is not on this machine"),
    pytest.param("--config.data.path=/nowhere.jsonl", "config.data.path", marks=pytest.mark.slow),
    pytest.param("--config.cold_start.steps=5", "would train from nothing", marks=pytest.mark.slow),
  ],
)
def test_what_is_not_there_ends_in_one_sentence(cache, tmp_path, flag, sentence):
  folder, file = make_folder(tmp_path / "qwen"), make_file(tmp_path / "train.jsonl")
  done = subprocesses.run_one(
    "grpojax.main",
    "--config=configs/grpo.py:local",
    f"--config.model.path={folder}",
    f"--config.data.path={file}",
    f"--config.cache_dir={cache}",
    f"--workdir={tmp_path / 'run'}",
    flag,
  )
  assert done.code == 1 and len(done.err.strip().splitlines()) == 1, done.err
  assert sentence in done.err


def test_names_on_the_hub_are_paths_and_the_run_keeps_their_commits(tmp_path, monkeypatch):
  folder, file = make_folder(tmp_path / "qwen"), make_file(tmp_path / "train.jsonl")
  model = {f"{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}
  of_data = hub_server.Repo({"train.jsonl": file.read_bytes()})
  with hub_server.serve({"me/qwen": hub_server.Repo(model)}, {"me/sums": of_data}) as (endpoint, _):
    hub_server.use(monkeypatch, endpoint, tmp_path)
    config = base.get_config("local")
    config.model.path, config.data.path, config.cache_dir = "me/qwen", "me/sums", str(tmp_path / "cache")
    config.rollout.update(prompts=8, group_size=2, max_tokens=16)
    config.data.prompt_budget = 160
    config.update(updates_per_rollout=1, microbatches=1)

    def start():
      monkeypatch.setattr(hub, "_FETCHED", {})  # as a process that begins
      return manifest.describe(setup.prepare(config, tmp_path / "run"), Run("id", "now"))

    before = start()
    assert before["versions"]["hub me/sums"] == of_data.revisions["main"][0]
    assert len(before["versions"]["hub me/qwen"]) == 40
    of_data.commit({"train.jsonl": file.read_bytes(), "README.md": "A card."})
    config.data.prompt_budget = 512 - 15
    with pytest.raises(ValueError, match=r"config.rollout.max_tokens = 16 are 513 tokens, .* made for 512"):
      start()
    config.data.prompt_budget = 160
    after = start()
    manifest.compare(before, after, config, 1)  # other words about the same rows
    assert after["versions"]["hub me/sums"] != before["versions"]["hub me/sums"]
    of_data.commit({"train.jsonl": file.read_bytes().replace(b"What", b"Which")})
    with pytest.raises(ValueError, match=r"checkpoint 1 differs in data .*train: "):
      manifest.compare(before, start(), config, 1)


def test_a_tokenizers_unused_token_needs_no_embedding_and_a_used_one_does(tmp_path):
  folder = make_folder(tmp_path / "qwen")
  config = base.get_config("local")
  config.model.path = str(folder)
  tokenizer = setup.text.load_tokenizer(folder)
  known = policy_lib.build_model(config, tokenizer).spec.vocab_size
  tokenizer.add_tokens([f"<extra {i}>" for i in range(known)], special_tokens=True)
  model = policy_lib.build_model(config, tokenizer)  # as transformers adds <|endoftext|> to an exported Qwen2

  def split(*tokens):
    prompts = [np.array([1, 2], np.int32), np.array(tokens, np.int32)]
    return pipeline.Split("train", [{}] * 2, prompts, np.array([4, 7]), 9, 0)

  policy_lib.check_prompts(model, split(known - 1))
  with pytest.raises(ValueError, match=f"Row 7 of split 'train' has token {known}, and config.model knows"):
    policy_lib.check_prompts(model, split(3, known))
  tokenizer.pad_token = f"<extra {known - 1}>"
  with pytest.raises(ValueError, match="they do not belong together"):
    policy_lib.build_model(config, tokenizer)
