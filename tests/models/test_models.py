"""The decoder against itself: with a cache, with other padding, in another precision."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpojax import models
from grpojax.models.attention import attend, attend_causally
from grpojax.models.parts import project
from grpojax.recipes import base

slow = pytest.mark.slow
VOCABULARY = 50


@pytest.fixture(scope="module")
def tiny():
  config = base.get_config("tiny").model
  model = models.build(config, VOCABULARY)
  return model, model.init(jax.random.key(0))


def padded_batch(first=(0, 4, 7)):
  rng = np.random.default_rng(0)
  return rng.integers(0, VOCABULARY, (len(first), 16), np.int32), np.asarray(first, np.int32)


def forward(model):
  """Hidden states of a batch, by parameters: one program, as each operation alone would compile as long."""
  return jax.jit(lambda params, tokens, first: model.bind(params)(tokens, first))


def test_decoding_with_a_cache_equals_the_full_forward(tiny):
  model, params = tiny
  decoder = model.bind(params)
  tokens, first = padded_batch()
  full = np.asarray(forward(model)(params, tokens, first))
  hidden, cache, _ = jax.jit(decoder.prefill, static_argnums=2)(tokens[:, :8], first, 16)
  np.testing.assert_allclose(hidden, full[:, 7], atol=1e-5)
  layers = decoder.unstacked_layers()
  decode = jax.jit(lambda token, column, cache: decoder.decode(layers, token, column, first, cache))
  for column in range(8, 16):
    hidden, cache, _ = decode(tokens[:, column], column, cache)
    np.testing.assert_allclose(hidden, full[:, column], atol=1e-5)


@slow
def test_matrices_in_pieces_multiply_as_whole_ones(tiny):
  """Each piece is of whole vectors of the residual stream, by input or by output."""
  config = base.get_config("tiny").model
  config.update(hidden_size=512, num_hidden_layers=2)
  model = models.build(config, VOCABULARY)
  decoder = model.bind(model.init(jax.random.key(0)))
  whole, cut = decoder.unstacked_layers(), decoder.unstacked_layers(piece_bytes=40_000)
  number = lambda name: len(getattr(cut[0][0], name).get_value())
  size = lambda name: getattr(whole[0][0], name)[...].nbytes
  assert 40_000 < size("q") == size("gate") // 2 < 80_000, "two pieces, and four"
  assert [number(name) for name in ("q", "o", "gate", "up", "down")] == [2, 2, 4, 4, 4]
  tokens, first = padded_batch()
  _, cache, _ = decoder.prefill(tokens[:, :8], first, 16)
  want, *_ = decoder.decode(whole, tokens[:, 8], 8, first, cache)
  got, *_ = decoder.decode(cut, tokens[:, 8], 8, first, cache)
  np.testing.assert_allclose(got, want, atol=1e-5)


def test_padding_content_and_width_change_nothing(tiny):
  model, params = tiny
  hidden = lambda tokens, first: np.asarray(forward(model)(params, tokens, first))
  tokens, first = padded_batch()
  full = hidden(tokens, first)
  behind = np.arange(16)[None] < first[:, None]
  np.testing.assert_array_equal(hidden(np.where(behind, 7, tokens), first)[~behind], full[~behind])
  wider = hidden(np.pad(tokens, ((0, 0), (5, 0))), first + 5)[:, 5:]
  np.testing.assert_allclose(wider[~behind], full[~behind], atol=1e-5)


def test_sequences_that_share_a_row_do_not_see_each_other(tiny):
  """Three of them in a row of 20 columns, and what is behind them, against each in a row of its own."""
  model, params = tiny
  rows = jax.jit(lambda tokens, segment: model.bind(params).forward(tokens, segment)[0])
  tokens, lengths = padded_batch()[0], (7, 1, 9)
  alone = np.asarray(rows(tokens, np.ones_like(tokens)))
  starts = np.cumsum((0, *lengths))
  row = np.concatenate([*(tokens[i, :n] for i, n in enumerate(lengths)), tokens[0, :3]])
  segment = np.asarray(np.repeat((4, 2, 9, 0), (*lengths, 3)))  # whatever the numbers
  shared = np.asarray(rows(row[None], segment[None]))[0]
  for i, n in enumerate(lengths):
    np.testing.assert_allclose(shared[starts[i] : starts[i + 1]], alone[i, :n], atol=1e-5)


def test_every_parameter_names_its_axes_and_reaches_the_output(tiny):
  model, params = tiny
  is_axes = lambda leaf: isinstance(leaf, tuple)
  assert jax.tree.map(len, model.axes, is_leaf=is_axes) == jax.tree.map(jnp.ndim, params)
  tokens, first = padded_batch()
  weigh = np.arange(32.0, dtype=np.float32)[None, None]
  grads = jax.jit(jax.grad(lambda p: (model.bind(p)(tokens, first) ** 2 * weigh).sum()))(params)
  assert all(np.abs(g).max() > 0 for g in jax.tree.leaves(grads))


def test_bfloat16_activations_stay_close_to_float32(tiny):
  model, params = tiny
  config = base.get_config("tiny").model
  config.dtype = "bfloat16"
  tokens, first = padded_batch((0, 0, 0))
  narrow = forward(models.build(config, VOCABULARY))(params, tokens, first)
  assert narrow.dtype == jnp.bfloat16
  wide = forward(model)(params, tokens, first)
  np.testing.assert_allclose(np.asarray(narrow, np.float32), wide, atol=0.15)


def test_a_matrix_times_what_it_meets_has_the_gradients_of_the_sum_it_stands_for():
  rng = np.random.default_rng(0)
  draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  cases = (("bsd,df->bsf", (2, 3, 4), (4, 5), 1), ("bsd,dnh->bsnh", (2, 3, 4), (4, 5, 6), 1))
  for formula, x, weight, axes in (*cases, ("bsnh,nhd->bsd", (2, 3, 5, 6), (5, 6, 4), 2)):
    x, weight = draw(*x), draw(*weight)
    want, pull = jax.vjp(partial(jnp.einsum, formula), x, weight)
    got, own_pull = jax.vjp(partial(project, axes=axes), x, weight)
    np.testing.assert_allclose(got, want, atol=1e-5)
    ct = draw(*want.shape)
    for mine, theirs in zip(own_pull(ct), pull(ct), strict=True):
      np.testing.assert_allclose(mine, theirs, atol=1e-5)


def gradient(model):
  tokens, first = padded_batch()
  weigh = jnp.arange(32.0)[None, None]
  return lambda p: jax.grad(lambda p: (model.bind(p)(tokens, first) ** 2 * weigh).sum())(p)


@pytest.mark.parametrize(
  ("queries", "before"), [(3, 2), *(pytest.param(*cut, marks=slow) for cut in ((1, 0), (13, 0), (16, 7)))]
)
def test_queries_in_blocks_read_what_they_read_at_once(queries, before):
  rng = np.random.default_rng(queries)
  draw = lambda n, heads: rng.normal(size=(2, n, heads, 4)).astype(np.float32)
  q, ct, k, v = draw(queries, 4), draw(queries, 4), draw(before + queries, 2), draw(before + queries, 2)
  causal = np.arange(before + queries) <= before + np.arange(queries)[:, None]
  mask = causal & (np.random.default_rng(0).random((2, *causal.shape)) < 0.7)
  mask[:, np.arange(queries), before + np.arange(queries)] = True  # each sees itself at least

  def both(attention):
    out, back = jax.vjp(lambda *qkv: attention(*qkv, mask, 0.5, 3.0), q, k, v)
    return out, back(ct)

  cut, whole = (jax.jit(both, static_argnums=0)(attention) for attention in (attend_causally, attend))
  jax.tree.map(lambda *pair: np.testing.assert_allclose(*pair, atol=2e-6), cut, whole)


@slow
def test_what_is_kept_of_a_layer_changes_the_memory_and_not_the_gradient(tiny):
  model, params = tiny
  policies = ("full", "attention", "qkv", "projections", "none")
  assert set(policies) == {*models.REMAT, "none"}
  compiled = [jax.jit(gradient(model._replace(remat=name))).lower(params).compile() for name in policies]
  for other in compiled[1:]:
    for a, b in zip(*(jax.tree.leaves(f(params)) for f in (compiled[0], other)), strict=True):
      np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6 * float(jnp.abs(a).max()))
  sizes = [f.memory_analysis().temp_size_in_bytes for f in compiled]
  assert sizes == sorted(sizes) and sizes[0] < sizes[-1]
  jaxprs = [str(jax.make_jaxpr(gradient(model._replace(remat=name)))(params)) for name in policies]
  dots = [text.count("dot_general[") for text in jaxprs]
  assert dots[0] > dots[1] > dots[2] > dots[3] >= dots[4]  # fewer are computed again


def test_the_program_does_not_grow_with_depth():
  """Operations, not seconds: layers are scanned, forward and backward."""
  config = base.get_config("tiny").model
  sizes = []
  for layers in (2, 8):
    config.num_hidden_layers = layers
    model = models.build(config, VOCABULARY)
    text = jax.jit(gradient(model)).lower(model.shapes).as_text()
    sizes.append(text.count(" = "))
  assert sizes[1] == sizes[0]
