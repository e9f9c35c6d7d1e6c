"""Exported folders are bitwise what was loaded, in shards that transformers' own index describes."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
import subprocesses
import upload_hub
from model_folders import FAMILIES, FOLDERS, loaded, mesh
from safetensors import safe_open

from grpojax import models
from grpojax.data import text
from grpojax.learner.state import create
from grpojax.models import hf
from grpojax.recipes import base
from grpojax.runtime import checkpointer, lock
from grpojax.tools import export


def tensors(folder: Path) -> dict[str, np.ndarray]:
  """Every tensor of a folder, by the files themselves and not by any index."""
  found = {}
  for file in sorted(folder.glob("*.safetensors")):
    with safe_open(file, framework="np") as opened:
      assert opened.metadata() == {"format": "pt"}
      names = set(opened.keys())
      assert not names & found.keys()
      found |= {name: opened.get_tensor(name) for name in names}
  return found


def bits(array: np.ndarray) -> tuple:
  return array.dtype, array.shape, array.tobytes()


OFTEN = ("gemma3_text", "qwen2_moe", "qwen3")  # by default; the rest: slow


@pytest.mark.parametrize(
  "family", [pytest.param(name, marks=[] if name in OFTEN else pytest.mark.slow) for name in FAMILIES]
)
def test_a_round_trip_is_bitwise_from_any_layout(family, tmp_path):
  model = loaded(family)[0]
  params = hf.load(FOLDERS / family, model, mesh(fsdp=2, tensor=2, expert=1))
  out = tmp_path / "out"
  export.write_folder(params, model.spec, FOLDERS / family, out, 9_000, "bfloat16")
  before, after = tensors(FOLDERS / family), tensors(out)
  assert {n: bits(a) for n, a in before.items()} == {n: bits(a) for n, a in after.items()}
  for name in ("config.json", "generation_config.json"):
    assert (out / name).read_bytes() == (FOLDERS / family / name).read_bytes()
  again = hf.load(out, models.from_spec(models.from_folder(out)), mesh())
  jax.tree.map(np.testing.assert_array_equal, again, params)


def test_shards_keep_to_their_size_and_the_index_says_where_everything_is(tmp_path):
  model, params, _ = loaded("qwen3")
  out = tmp_path / "out"
  export.write_folder(params, model.spec, FOLDERS / "qwen3", out, 9_000, "float32")
  index = json.loads((out / "model.safetensors.index.json").read_text())
  found = {}
  for file in sorted(out.glob("*.safetensors")):
    with safe_open(file, framework="np") as opened:
      arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    assert len(arrays) == 1 or sum(a.nbytes for a in arrays.values()) <= 9_000
    found |= dict.fromkeys(arrays, file.name)
  assert index["weight_map"] == found
  assert index["metadata"]["total_size"] == sum(a.nbytes for a in tensors(out).values())
  assert len(set(found.values())) == int(next(iter(found.values())).split("-of-")[1][:5]) > 2
  assert json.loads((out / "config.json").read_text())["dtype"] == "float32"  # readers believe it


def test_one_shard_has_no_index_and_nothing_is_overwritten(tmp_path):
  model, params, _ = loaded("llama")
  out = tmp_path / "out"
  args = params, model.spec, FOLDERS / "llama", out, 10**9, "bfloat16"
  export.write_folder(*args)
  assert [file.name for file in out.glob("model*")] == ["model.safetensors"]
  with pytest.raises(ValueError, match="exists already"):
    export.write_folder(*args)


def test_tokenizer_files_come_along_and_other_weights_and_the_card_of_the_base_do_not(tmp_path):
  source = tmp_path / "source"
  source.mkdir()
  for name in ("tokenizer.json", "chat_template.jinja", "README.md", "pytorch_model.bin", "LICENSE"):
    (source / name).write_text(name)
  (source / "config.json").write_text('{"torch_dtype": "bfloat16"}')
  model, params, _ = loaded("llama")
  export.write_folder(params, model.spec, source, tmp_path / "out", 10**9, "bfloat16", "# ours\n")
  names = sorted(file.name for file in (tmp_path / "out").iterdir())
  weights = "model.safetensors"
  assert names == ["LICENSE", "README.md", "chat_template.jinja", "config.json", weights, "tokenizer.json"]
  assert (tmp_path / "out" / "README.md").read_text() == "# ours\n"
  assert (tmp_path / "out" / "config.json").read_text() == '{"torch_dtype": "bfloat16"}'


def saved_run(workdir: Path, experts: int = 0, with_reference: bool = False) -> tuple[models.Model, dict]:
  """A workdir with checkpoints of two steps, each of which has added 1; (model, the first parameters)."""
  config = base.get_config("tiny")
  config.model.num_experts = experts
  (workdir / "config.json").write_text(config.to_json_best_effort())
  model = models.build(config.model, len(text.load_tokenizer()))
  params = jax.jit(model.init)(jax.random.key(0))
  tx = optax.adam(1e-3)
  checkpoints = checkpointer.open_checkpoints(workdir, keep=2)
  for step in (1, 2):
    state = create(jax.tree.map(lambda x, step=step: x + step, params), tx)
    reference = params if with_reference else None
    host = {"step": step, "stands_on": {"versions": {"grpojax": f"of step {step}"}}}
    checkpointer.save(checkpoints, step, (state, reference), host)
  checkpointer.finish(checkpoints)
  checkpoints.close()
  return model, params


@pytest.mark.parametrize(
  ("with_reference", "experts"),
  [(True, 0), pytest.param(False, 0, marks=pytest.mark.slow), pytest.param(False, 4, marks=pytest.mark.slow)],
)
def test_the_newest_checkpoint_of_a_run_becomes_a_folder(tmp_path, with_reference, experts):
  model, params = saved_run(tmp_path, experts, with_reference)
  args = [f"--workdir={tmp_path}", f"--out={tmp_path / 'out'}", "--dtype=float32", "--shard_mb=1"]
  export.main(args)
  out = models.from_spec(models.from_folder(tmp_path / "out"))
  assert out.spec == model.spec
  again = hf.load(tmp_path / "out", out, mesh())
  jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b + 2), again, params)
  # Of a Qwen2 folder transformers makes its own class, which adds <|endoftext|>; the ids are the same.
  tokenizer, exported = text.load_tokenizer(), text.load_tokenizer(tmp_path / "out")
  words = "What is 3+4?  It's 7 # é"
  assert exported(words)["input_ids"] == tokenizer(words)["input_ids"]
  assert exported.eos_token_id == tokenizer.eos_token_id and exported.chat_template
  card = (tmp_path / "out" / "README.md").read_text()
  assert "after 2 of 2 steps" in card and "| grpojax | of step 2 |" in card
  with pytest.raises(ValueError, match="exists already"):
    export.main(args)


def test_one_export_writes_a_folder_at_a_time(tmp_path):
  """A second one would delete what the first is writing."""
  saved_run(tmp_path)
  words = [f"--workdir={tmp_path}", f"--out={tmp_path / 'out'}"]
  told = pytest.raises(ValueError, match=r"--out=.*/out is being written: process ")
  with lock.hold(tmp_path / "out.lock", "the first"), told:
    export.main(words)
  export.main(words)
  assert (tmp_path / "out").is_dir() and not (tmp_path / "out.lock").exists()


@pytest.mark.slow
def test_the_command_uploads_what_it_has_written(tmp_path):
  saved_run(tmp_path)
  with upload_hub.serve() as hub:
    flags = [f"--workdir={tmp_path}", f"--out={tmp_path / 'out'}", "--push=org/name"]
    own = dict(HF_ENDPOINT=hub.url, HF_TOKEN=upload_hub.WRITER, HF_HUB_OFFLINE="0", HF_HUB_DISABLE_XET="1")
    words, env = [sys.executable, "-m", "grpojax", "export", *flags], subprocesses.environment(**own)
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=240)
  assert done.returncode == 0, done.stderr
  assert done.stdout.endswith(f"the policy after step 2 is in {tmp_path}/out\nand at {hub.url}/org/name\n")
  files = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
  assert hub.repos == {"org/name": {"private": True, "files": files}} and "README.md" in files


def test_a_workdir_without_a_checkpoint_says_so(tmp_path):
  with pytest.raises(ValueError, match="is no run"):
    export.main([f"--workdir={tmp_path}", f"--out={tmp_path / 'out'}"])
  (tmp_path / "config.json").write_text(base.get_config("tiny").to_json_best_effort())
  with pytest.raises(ValueError, match="holds no checkpoint"):
    export.main([f"--workdir={tmp_path}", f"--out={tmp_path / 'out'}"])


@pytest.mark.parametrize(
  ("content", "more", "sentence"),
  [
    ({"model_type": "qwen2"}, [], "is no run: it has no config.json of one"),  # a model's folder
    (None, ["--shard_mb=0"], "--shard_mb=0 holds no tensor"),
    (None, ["--out=FOLDER/file/out"], "--out=.*file cannot be made .File exists"),
  ],
)
def test_what_no_export_can_use_is_refused_before_anything_is_read(tmp_path, content, more, sentence):
  (tmp_path / "file").touch()
  run = base.get_config("tiny").to_json_best_effort()
  (tmp_path / "config.json").write_text(json.dumps(content) if content else run)
  words = [f"--workdir={tmp_path}", f"--out={tmp_path / 'out'}"]
  with pytest.raises(ValueError, match=sentence):
    export.main([*words, *(word.replace("FOLDER", str(tmp_path)) for word in more)])
  assert {path.name for path in tmp_path.iterdir()} == {"file", "config.json"}
