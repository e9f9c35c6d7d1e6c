"""The decoder against itself: with a cache, with other padding, in another precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from grpojax import models

VOCABULARY = 50


@pytest.fixture(scope="module")
def tiny():
  config = base.get_config("tiny").model
  model = models.build(config, VOCABULARY)
  return model, model.init(jax.random.key(0))


def padded_batch(first=(0, 4, 7)):
  rng = np.random.default_rng(0)
  return jnp.asarray(rng.integers(0, VOCABULARY, (len(first), 16))), jnp.asarray(first)


def test_decoding_with_a_cache_equals_the_full_forward(tiny):
  model, params = tiny
  decoder = model.bind(params)
  tokens, first = padded_batch()
  full = decoder(tokens, first)
  hidden, cache, _ = decoder.prefill(tokens[:, :8], first, 16)
  np.testing.assert_allclose(hidden, full[:, 7], atol=1e-5)
  layers = decoder.unstacked_layers()
  for column in range(8, 16):
    hidden, cache, _ = decoder.decode(layers, tokens[:, column], column, first, cache)
    np.testing.assert_allclose(hidden, full[:, column], atol=1e-5)


def test_padding_content_and_width_change_nothing(tiny):
  model, params = tiny
  decoder = model.bind(params)
  tokens, first = padded_batch()
  full = decoder(tokens, first)
  behind = jnp.arange(16)[None] < first[:, None]
  np.testing.assert_array_equal(
    decoder(jnp.where(behind, 7, tokens), first)[~behind], full[~behind]
  )
  wider = decoder(jnp.pad(tokens, ((0, 0), (5, 0))), first + 5)[:, 5:]
  np.testing.assert_allclose(wider[~behind], full[~behind], atol=1e-5)


def test_sequences_that_share_a_row_do_not_see_each_other(tiny):
  """Three of them in a row of 20 columns, and what is behind them, against each in a row of its own."""
  model, params = tiny
  forward = jax.jit(lambda tokens, segment: model.bind(params).forward(tokens, segment)[0])
  tokens, lengths = padded_batch()[0], (7, 1, 9)
  alone = forward(tokens, jnp.ones_like(tokens))
  starts = np.cumsum((0, *lengths))
  row = jnp.concatenate([*(tokens[i, :n] for i, n in enumerate(lengths)), tokens[0, :3]])
  segment = jnp.asarray(np.repeat((4, 2, 9, 0), (*lengths, 3)))  # whatever the numbers
  shared = forward(row[None], segment[None])[0]
  for i, n in enumerate(lengths):
    np.testing.assert_allclose(shared[starts[i] : starts[i + 1]], alone[i, :n], atol=1e-5)


def test_every_parameter_names_its_axes_and_reaches_the_output(tiny):
  model, params = tiny
  is_axes = lambda leaf: isinstance(leaf, tuple)  # noqa: E731
  assert jax.tree.map(len, model.axes, is_leaf=is_axes) == jax.tree.map(jnp.ndim, params)
  tokens, first = padded_batch()
  weigh = jnp.arange(32.0)[None, None]
  grads = jax.grad(lambda p: (model.bind(p)(tokens, first) ** 2 * weigh).sum())(params)
  assert all(float(jnp.abs(g).max()) > 0 for g in jax.tree.leaves(grads))


def test_bfloat16_activations_stay_close_to_float32(tiny):
  model, params = tiny
  config = base.get_config("tiny").model
  config.dtype = "bfloat16"
  tokens, first = padded_batch((0, 0, 0))
  narrow = models.build(config, VOCABULARY).bind(params)(tokens, first)
  assert narrow.dtype == jnp.bfloat16
  wide = model.bind(params)(tokens, first)
  np.testing.assert_allclose(narrow.astype(jnp.float32), wide, atol=0.15)
