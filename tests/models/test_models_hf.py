"""Every family against transformers on torch: loaded from its folder, scored, and decoded greedily.

The folders, logits and completions of tests/data/models come from tests/data/make_models.py.
"""

import dataclasses
import functools
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_folders import FAMILIES, FOLDERS, loaded, mesh
from safetensors import safe_open
from safetensors.numpy import save_file

from grpojax import models
from grpojax.learner.logprob_scan import token_logprobs
from grpojax.models import hf, names
from grpojax.models import spec as spec_lib
from grpojax.recipes import base
from grpojax.rollout import sampler


@functools.cache
def scored(family):
  """(logits [B, S, V], logp [B, S - 1]) of the stored tokens by the full forward pass."""
  model, params, expected = loaded(family)

  @jax.jit
  def run(params, tokens, first):
    decoder = model.bind(params)
    hidden = decoder(tokens, first)
    kwargs = dict(temperature=1.0, chunk=13, cap=model.spec.logit_softcap)
    logp, _ = token_logprobs(hidden[:, :-1], decoder.unembedding(), tokens[:, 1:], **kwargs)
    return decoder.logits(hidden), logp

  return jax.tree.map(np.asarray, run(params, expected["tokens"], expected["first"]))


def real_columns(expected):
  column = np.arange(expected["tokens"].shape[1])[None]
  return (column >= expected["first"][:, None]) & (column < expected["last"][:, None])


def test_every_family_has_a_folder_and_a_row_in_the_docs():
  assert set(FAMILIES) == set(names.FAMILIES) == set(spec_lib._FAMILIES)
  page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
  assert all(f"| {family} |" in page for family in FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_log_probs_are_those_of_transformers(family):
  _, _, expected = loaded(family)
  logits, logp = scored(family)
  real, tokens = real_columns(expected), expected["tokens"]
  np.testing.assert_allclose(logits[real], expected["logits"][real], atol=1e-4, rtol=0)
  theirs = expected["logits"].astype(np.float64)
  theirs -= np.log(np.exp(theirs).sum(-1, keepdims=True))
  theirs = np.take_along_axis(theirs[:, :-1], tokens[:, 1:, None], -1)[..., 0]
  both = real[:, 1:] & real[:, :-1]
  np.testing.assert_allclose(logp[both], theirs[both], atol=1e-4, rtol=0)
  assert np.ptp(theirs[both]) > 2  # else the tolerance would say nothing


OFTEN = ("llama", "gemma2", "qwen3_moe")  # logits of every family are compared above


@pytest.mark.parametrize(
  "family", [pytest.param(name, marks=[] if name in OFTEN else pytest.mark.slow) for name in FAMILIES]
)
def test_greedy_completions_are_those_of_transformers_and_scored_as_by_the_full_forward(family):
  model, params, expected = loaded(family)
  L, tokens = int(expected["prompt"]), expected["tokens"]
  T = tokens.shape[1] - L
  never = (model.spec.vocab_size,)
  prefill, decode = sampler.static_batch.build(
    model, group_size=1, max_tokens=T, sampling=sampler.SamplingParams(temperature=0), eos_ids=never
  )
  prefilled = jax.jit(prefill)(params, tokens[:, :L], L - expected["first"])
  rollout = jax.jit(decode)(params, prefilled, jax.random.key(0), jnp.arange(len(tokens)))
  np.testing.assert_array_equal(rollout.tokens[:, 0], tokens[:, L:])
  np.testing.assert_allclose(rollout.sampler_logp[:, 0], scored(family)[1][:, L - 1 :], atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["gemma3_text", "qwen3_moe"])
def test_the_program_does_not_grow_with_depth(family):
  """Windows and rotary tables that differ between layers are data of one scan."""

  def lines(layers):
    spec = loaded(family)[0].spec
    cycle = lambda kinds: tuple(kinds[i % len(kinds)] for i in range(layers))
    kinds = dict(windows=cycle(spec.windows), rope_of=cycle(spec.rope_of))
    model = models.from_spec(dataclasses.replace(spec, num_hidden_layers=layers, **kinds))
    run = lambda params, tokens: model.bind(params)(tokens, jnp.zeros(2, jnp.int32))
    return str(jax.make_jaxpr(run)(model.shapes, jnp.zeros((2, 5), jnp.int32))).count("\n")

  assert abs(lines(40) - lines(4)) <= 2  # a constant may be printed on more lines


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sharded_load_is_bitwise_the_folder_cut_by_rows_heads_and_experts(family):
  model, params, _ = loaded(family)
  cut = hf.load(FOLDERS / family, model, mesh(fsdp=2, tensor=3, expert=1))
  jax.tree.map(np.testing.assert_array_equal, cut, params)
  if model.spec.moe:
    cut = hf.load(FOLDERS / family, model, mesh(expert=5))
    assert cut["layers"]["moe"]["up"].sharding.shard_shape(cut["layers"]["moe"]["up"].shape)[1] == 1
    jax.tree.map(np.testing.assert_array_equal, cut, params)


def test_each_slice_is_read_once_and_no_more_than_a_device_holds(monkeypatch):
  reads = []

  class Recorder(hf.Tensors):
    def reader(self):
      tensor = super().reader()

      class Handle:
        def __init__(self, name):
          self.name, self.slice = name, tensor(name)
          self.get_shape = self.slice.get_shape

        def __getitem__(self, index):
          reads.append((self.name, self.slice[index].size))
          return self.slice[index]

      return Handle

  monkeypatch.setattr(hf, "Tensors", Recorder)
  model, _, _ = loaded("llama")
  hf.load(FOLDERS / "llama", model, mesh(data=2, fsdp=2, tensor=2))
  sizes = hf.expected(model)
  of_q = [size for name, size in reads if name.endswith("layers.1.self_attn.q_proj.weight")]
  assert of_q == [np.prod(sizes["model.layers.1.self_attn.q_proj.weight"]) / 4] * 4
  for name, shape in sizes.items():  # replicas share what is read
    assert sum(size for n, size in reads if n == name) == np.prod(shape)


def test_parameters_may_be_narrow_and_activations_wide():
  spec = models.from_folder(FOLDERS / "gemma2", dtype="float32", param_dtype="bfloat16")
  model = models.from_spec(spec)
  params = hf.load(FOLDERS / "gemma2", model, mesh())
  assert {a.dtype for a in jax.tree.leaves(params)} == {jnp.dtype("bfloat16")}
  wide = loaded("gemma2")[1]
  jax.tree.map(lambda a, b: np.testing.assert_array_equal(a.astype(jnp.float32), b), params, wide)


@pytest.fixture
def folder(tmp_path):
  """A copy of the Qwen2 folder in one file, and a function that rewrites its tensors."""
  shutil.copy(FOLDERS / "qwen2" / "config.json", tmp_path)
  tensors = {}
  for file in sorted((FOLDERS / "qwen2").glob("*.safetensors")):
    with safe_open(file, framework="np") as opened:
      tensors |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118

  def rewrite(change):
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path

  return rewrite


def test_missing_unexpected_and_misshapen_tensors_are_named(folder):
  def change(tensors):
    del tensors["model.layers.1.self_attn.k_proj.bias"]
    tensors["model.layers.2.mlp.up_proj.weight"] = np.zeros((2, 2), np.float32)
    tensors["lm_head.weight"] = np.ascontiguousarray(tensors["lm_head.weight"].T)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(4, np.float32)  # old files have it

  model = loaded("qwen2")[0]
  with pytest.raises(ValueError) as error:
    hf.load(folder(change), model, mesh())
  said = str(error.value)
  assert "1 missing (model.layers.1.self_attn.k_proj.bias)" in said
  assert "1 unexpected (model.layers.2.mlp.up_proj.weight)" in said
  assert "1 mis-shaped (lm_head.weight is (24, 61) for (61, 24))" in said
  assert "inv_freq" not in said and "\n" not in said


@pytest.mark.parametrize("differs", [False, True])
def test_a_tied_model_may_repeat_its_embedding_but_not_contradict_it(folder, differs):
  def change(tensors):
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    tensors["lm_head.weight"][7, 3] += differs

  path = folder(change)
  config = json.loads((path / "config.json").read_text()) | {"tie_word_embeddings": True}
  (path / "config.json").write_text(json.dumps(config))
  model = models.from_spec(models.from_folder(path))
  if differs:
    with pytest.raises(ValueError, match=r"1 unexpected \(lm_head.weight\)"):
      hf.load(path, model, mesh())
  else:
    assert "head" not in hf.load(path, model, mesh())


def test_a_folder_without_weights_or_config_says_so(tmp_path):
  with pytest.raises(ValueError, match=r"config\.json does not exist"):
    models.from_folder(tmp_path)
  with pytest.raises(ValueError, match=r"lacks model\.safetensors"):
    hf.load(tmp_path, loaded("qwen2")[0], mesh())
  shutil.copytree(FOLDERS / "qwen2", tmp_path / "torn")
  (tmp_path / "torn" / "model-00002-of-00002.safetensors").unlink()
  with pytest.raises(ValueError, match=r"lacks model-00002-of-00002\.safetensors"):
    hf.load(tmp_path / "torn", loaded("qwen2")[0], mesh())


@pytest.mark.parametrize(
  ("family", "changes", "said"),
  [
    ("llama", {"model_type": "phi3"}, "model_type = 'phi3'"),
    ("llama", {"mlp_bias": True}, "mlp_bias"),
    ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}, "'yarn'"),
    ("qwen3_moe", {"mlp_only_layers": [1]}, "mlp_only_layers"),
    ("qwen2", {"hidden_act": "relu"}, "'relu'"),
  ],
)
def test_what_the_decoder_cannot_do_is_refused_by_name(tmp_path, family, changes, said):
  config = json.loads((FOLDERS / family / "config.json").read_text()) | changes
  (tmp_path / "config.json").write_text(json.dumps(config))
  with pytest.raises(ValueError, match=said) as error:
    models.from_folder(tmp_path)
  assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)


def test_the_configs_own_keys_describe_what_a_folder_of_the_same_sizes_does(tmp_path):
  config = base.get_config("tiny").model
  config.dtype = "bfloat16"
  (tmp_path / "config.json").write_text(
    json.dumps(config.to_dict() | {"model_type": "qwen2", "vocab_size": 50, "max_window_layers": 0})
  )
  spec = models.from_folder(tmp_path, dtype="bfloat16")
  assert models.build(config, 50).spec == spec
  assert not any(spec.windows)  # use_sliding_window is off, whatever the window


def test_configs_as_the_hub_has_them_from_before_rope_parameters(tmp_path):
  """Llama 3.1's own keys: rope_theta and rope_scaling, torch_dtype."""
  old = dict(
    model_type="llama", hidden_size=64, num_attention_heads=4, num_key_value_heads=2,
    num_hidden_layers=3, intermediate_size=96, vocab_size=99, rope_theta=500000.0,
    torch_dtype="bfloat16", rms_norm_eps=1e-5, max_position_embeddings=131072,
    rope_scaling=dict(
      factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, rope_type="llama3",
      original_max_position_embeddings=8192,
    ),
  )  # fmt: skip
  (tmp_path / "config.json").write_text(json.dumps(old))
  spec = models.from_folder(tmp_path)
  assert spec.ropes == (spec_lib.Rope(500000.0, "llama3", 8.0, 1.0, 4.0, 8192),)
  assert spec.head_dim == 16 and not spec.tie_word_embeddings and not spec.qkv_bias
