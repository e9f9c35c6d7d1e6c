"""Exported folders are bitwise what was loaded, in shards that transformers' own index describes."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from model_folders import FAMILIES, FOLDERS, loaded, mesh
from safetensors import safe_open

from grpojax import export, models
from grpojax.models import hf


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


@pytest.mark.parametrize("family", FAMILIES)
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


def test_tokenizer_files_come_along_and_other_weights_and_the_model_card_do_not(tmp_path):
  source = tmp_path / "source"
  source.mkdir()
  for name in ("tokenizer.json", "chat_template.jinja", "README.md", "pytorch_model.bin", "LICENSE"):
    (source / name).write_text(name)
  (source / "config.json").write_text('{"torch_dtype": "bfloat16"}')
  model, params, _ = loaded("llama")
  export.write_folder(params, model.spec, source, tmp_path / "out", 10**9, "bfloat16")
  names = sorted(file.name for file in (tmp_path / "out").iterdir())
  assert names == ["LICENSE", "chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json"]
  assert (tmp_path / "out" / "config.json").read_text() == '{"torch_dtype": "bfloat16"}'
