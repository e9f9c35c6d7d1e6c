"""Prompts read end to end in chunks: what the decoder's padded prefill keeps of them, and less padding."""

import functools

import jax
import numpy as np
import pytest
from model_folders import loaded

from grpojax import models
from grpojax.recipes import base
from grpojax.rollout.sampler import prefill
from grpojax.train import setup

P, L = 6, 10


@functools.cache
def both(family, chunk, shards):
  """(packed, padded), jitted: (params, tokens [P, L], length [P]) -> hidden, cache, ..."""
  model = loaded(family)[0]
  packed = lambda p, t, n: prefill.read(model.bind(p), t, n, chunk=chunk, shards=shards)
  padded = lambda p, t, n: model.bind(p).prefill(t, L - n, L)
  return jax.jit(packed), jax.jit(padded)


@pytest.mark.parametrize(
  "family, chunk, shards",
  [
    ("gemma2", 4, 1),
    pytest.param("gemma3_text", 64, 1, marks=pytest.mark.slow),
    pytest.param("qwen2", 9, 2, marks=pytest.mark.slow),
    pytest.param("qwen3_moe", 1, 3, marks=pytest.mark.slow),
  ],
)
def test_what_is_kept_of_a_prompt_is_that_of_reading_it_alone(family, chunk, shards):
  """Chunks shorter and longer than a prompt, windows shorter than both, and prompts that are left out."""
  model, params, _ = loaded(family)
  packed, padded = both(family, chunk, shards)
  rng = np.random.default_rng(0)
  for length in ([10, 1, 3, 10, 2, 10], [0, 4, 0, 10, 9, 0], [0, 0, 0, 0, 0, 7], [1] * P):
    length = np.array(length, np.int32)
    real = np.arange(L)[None] >= L - length[:, None]
    tokens = np.where(real, rng.integers(1, model.spec.vocab_size, (P, L)), 0).astype(np.int32)
    got, (hidden, cache, _) = packed(params, tokens, length), padded(params, tokens, length)
    asked = length > 0
    np.testing.assert_allclose(got.hidden[asked], hidden[asked], atol=2e-5)
    for ours, theirs in zip(jax.tree.leaves(got.cache), jax.tree.leaves(cache), strict=True):
      np.testing.assert_allclose(np.asarray(ours)[real], np.asarray(theirs)[real], atol=2e-5)
    longest = length.reshape(shards, -1).sum(1).max()
    assert got.columns == -(-longest // chunk) * chunk * shards


@pytest.mark.slow
def test_padding_is_at_most_three_twentieths_on_the_default_data(tmp_path):
  """Of what prefill reads, in every step of an epoch; left-padded prompts are nearly half padding."""
  config = base.get_config()
  config.cache_dir = str(tmp_path)
  config.data.update(train=2048, validation=1, test=1)
  data = setup.load_data(config, setup.build_scorer(config))
  model = models.build(base.get_config("tiny").model, len(data.tokenizer))
  read = jax.jit(
    lambda p, t, n: prefill.read(model.bind(p), t, n, chunk=config.rollout.prefill_chunk, shards=1).columns
  )
  params, asked = model.init(jax.random.key(0)), 0
  for _ in range(2048 // config.rollout.prompts):
    prompts = data.stream.next()
    columns = int(read(params, prompts.tokens, prompts.length))
    assert 0 <= 1 - prompts.length.sum() / columns <= 0.15
    asked += prompts.length.sum()
  assert asked / (2048 * config.data.prompt_budget) < 0.6
