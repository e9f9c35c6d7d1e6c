"""The chunked scan against plain log-softmax in float64, and its memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpojax.learner.logprob_scan import token_logprobs

B, T, D, V = 3, 10, 8, 37


scan = jax.jit(token_logprobs, static_argnames=("temperature", "chunk"))


def inputs(vocabulary=V, length=T):
  rng = np.random.default_rng(0)
  hidden = rng.normal(size=(B, length, D)).astype(np.float32)
  unembedding = rng.normal(size=(vocabulary, D)).astype(np.float32)
  return hidden, unembedding, rng.integers(0, vocabulary, (B, length))


def reference(hidden, unembedding, targets, temperature):
  logits = hidden.astype(np.float64) @ unembedding.astype(np.float64).T / temperature
  p = np.exp(logits - logits.max(-1, keepdims=True))
  p /= p.sum(-1, keepdims=True)
  return np.log(np.take_along_axis(p, targets[..., None], -1)[..., 0]), -(p * np.log(p)).sum(-1)


@pytest.mark.parametrize("chunk", [1, 3, 5, 10, 64])
@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.0])
def test_equals_log_softmax_in_float64(chunk, temperature):
  args = inputs()
  logp, entropy = scan(*args, temperature=temperature, chunk=chunk)
  expected = reference(*args, temperature)
  assert logp.dtype == entropy.dtype == jnp.float32
  np.testing.assert_allclose(logp, expected[0], atol=4e-6)
  np.testing.assert_allclose(entropy, expected[1], atol=4e-6)


def test_a_wider_head_is_multiplied_in_full_forward_and_backward():
  """Hidden states in bfloat16 beside a head in float32: products as in float64, and gradients."""
  hidden, unembedding, targets = inputs()
  narrow = jnp.asarray(hidden, jnp.bfloat16)
  exact = np.float64(narrow), np.float64(unembedding)
  logp, _ = scan(narrow, unembedding, targets, temperature=1.0, chunk=3)
  np.testing.assert_allclose(logp, reference(*exact, targets, 1.0)[0], atol=4e-6)
  rounded, _ = scan(narrow, jnp.asarray(unembedding, jnp.bfloat16), targets, temperature=1.0, chunk=3)
  assert np.abs(rounded - logp).max() > 1e-3  # what the narrow head loses
  slope = lambda fn: jax.jit(jax.grad(lambda w: fn(w).sum()))
  got = slope(lambda w: token_logprobs(narrow, w, targets, temperature=1.0, chunk=3)[0])(unembedding)
  with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
    want = slope(lambda w: direct(exact[0], w, targets, 1.0, 0.0)[0])(exact[1])
  assert got.dtype == np.float32
  np.testing.assert_allclose(got, want, atol=1e-4, rtol=1e-5)


def direct(hidden, unembedding, targets, temperature, cap):
  """Both outputs from logits that exist at once, in the dtype of what comes in."""
  logits = hidden @ unembedding.T
  logits = cap * jnp.tanh(logits / cap) if cap else logits
  logp = jax.nn.log_softmax(logits / temperature)
  return jnp.take_along_axis(logp, targets[..., None], -1)[..., 0], -(jnp.exp(logp) * logp).sum(-1)


@pytest.mark.parametrize("cap", [0.0, 3.0])
def test_gradients_equal_those_of_the_unchunked_formula_in_float64(cap):
  hidden, unembedding, targets = inputs()
  weigh = lambda outs: (outs[0] * jnp.arange(T)[None]).sum() - (outs[1] * jnp.arange(1, T + 1)[None]).sum()
  scanned = lambda h, w: weigh(token_logprobs(h, w, targets, temperature=0.7, chunk=3, cap=cap))
  with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
    wide = np.float64(hidden), np.float64(unembedding)
    expected = jax.jit(jax.grad(lambda h, w: weigh(direct(h, w, targets, 0.7, cap)), (0, 1)))(*wide)
  for got, want in zip(jax.jit(jax.grad(scanned, (0, 1)))(hidden, unembedding), expected, strict=True):
    np.testing.assert_allclose(got, want, atol=1e-4, rtol=1e-5)


def test_bfloat16_activations_are_summed_in_float32():
  """Against float64 on the same rounded numbers: what is left is one rounding of each gradient."""
  hidden, unembedding, targets = inputs(length=400)
  narrow = hidden.astype(jnp.bfloat16), unembedding.astype(jnp.bfloat16)
  logp, entropy = scan(*narrow, targets, temperature=1.0, chunk=8)
  exact = reference(*(np.asarray(x, np.float32) for x in narrow), targets, 1.0)
  np.testing.assert_allclose(logp, exact[0], atol=1e-5)
  np.testing.assert_allclose(entropy, exact[1], atol=1e-5)
  total = lambda h, w: token_logprobs(h, w, targets, temperature=1.0, chunk=8)[0].sum()
  got = jax.jit(jax.grad(total, (0, 1)))(*narrow)
  with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
    wide = [np.asarray(x, np.float64) for x in narrow]
    want = jax.jit(jax.grad(lambda h, w: direct(h, w, targets, 1.0, 0.0)[0].sum(), (0, 1)))(*wide)
  for mine, exact in zip(got, map(np.asarray, want), strict=True):
    assert mine.dtype == jnp.bfloat16
    error = np.abs(np.asarray(mine, np.float64) - exact).max()
    assert error < 2**-8 * float(np.abs(exact).max()), error


def memory(length, vocabulary, chunk, width=128, rows=1, backward=True):
  """(bytes of temporaries, bytes of all logits) of the compiled pass; nothing is computed."""
  f = lambda h, w, t: sum(o.sum() for o in token_logprobs(h, w, t, temperature=0.9, chunk=chunk))
  inputs = (rows, length, width), jnp.float32, (vocabulary, width), jnp.float32, (rows, length), jnp.int32
  args = [jax.ShapeDtypeStruct(*of) for of in zip(inputs[::2], inputs[1::2], strict=True)]
  compiled = jax.jit(jax.grad(f, (0, 1)) if backward else f).lower(*args).compile()
  return compiled.memory_analysis().temp_size_in_bytes, rows * length * vocabulary * 4


def test_the_pass_over_a_long_response_takes_a_twentieth_of_its_logits():
  """At the default chunk of local models.  The gradient of the head is its own size, however it is made."""
  used, logits = memory(2048, 152_064, 32, backward=False)
  assert used < logits / 20
  used, logits = memory(2048, 152_064, 32)
  assert used - 152_064 * 128 * 4 < logits / 20


@pytest.mark.parametrize("vocabulary", [5_000, 20_000, 80_000])
def test_memory_does_not_grow_with_sequence_times_vocabulary(vocabulary):
  """Four times the sequence costs far less than its logits, forward and backward, at any vocabulary."""
  (short, _), (long, logits) = (memory(length, vocabulary, 16, width=8) for length in (128, 512))
  assert long - short < 0.02 * logits


def test_chunks_that_nobody_wants_are_zero_and_change_no_gradient():
  hidden, unembedding, targets = inputs()

  def total(h, w, targets, wanted=None):
    logp, entropy = token_logprobs(h, w, targets, temperature=1.0, chunk=5, wanted=wanted)
    return (logp + 2 * entropy).sum(), (logp, entropy)

  grad = jax.jit(jax.grad(total, (0, 1), has_aux=True))
  (d_hidden, d_unembedding), outs = grad(hidden, unembedding, targets, np.int32(3))
  want, expected = grad(hidden[:, :5], unembedding, targets[:, :5])
  for got, of_first in zip(outs, expected, strict=True):
    np.testing.assert_array_equal(got, np.pad(of_first, ((0, 0), (0, 5))))
  np.testing.assert_allclose(d_hidden, np.pad(want[0], ((0, 0), (0, 5), (0, 0))), atol=1e-6)
  np.testing.assert_allclose(d_unembedding, want[1], atol=1e-5)
