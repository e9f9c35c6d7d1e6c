"""The chunked scan against plain log-softmax in float64, and its memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpojax.logprobs import token_logprobs

B, T, D, V = 3, 10, 8, 37


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
  logp, entropy = token_logprobs(*args, temperature=temperature, chunk=chunk)
  expected = reference(*args, temperature)
  assert logp.dtype == entropy.dtype == jnp.float32
  np.testing.assert_allclose(logp, expected[0], atol=4e-6)
  np.testing.assert_allclose(entropy, expected[1], atol=4e-6)


def test_gradients_equal_those_of_the_unchunked_formula():
  hidden, unembedding, targets = inputs()

  def direct(h, w):
    logp = jax.nn.log_softmax(h @ w.T / 0.7)
    chosen = jnp.take_along_axis(logp, targets[..., None], -1)[..., 0]
    return (chosen * jnp.arange(T)[None]).sum() + (jnp.exp(logp) * logp).sum()

  def scanned(h, w):
    logp, entropy = token_logprobs(h, w, targets, temperature=0.7, chunk=3)
    return (logp * jnp.arange(T)[None]).sum() - entropy.sum()

  with jax.numpy_rank_promotion("allow"):
    expected = jax.grad(direct, (0, 1))(hidden, unembedding)
  for got, want in zip(jax.grad(scanned, (0, 1))(hidden, unembedding), expected, strict=True):
    np.testing.assert_allclose(got, want, atol=2e-4, rtol=1e-4)


def test_no_array_of_sequence_times_vocabulary_exists_forward_or_backward():
  """By the compiler's own figures: four times the sequence costs far less than T times V floats."""
  vocabulary, chunk = 5000, 16

  def peak(length):
    hidden, unembedding, targets = inputs(vocabulary, length)
    f = lambda h, w: token_logprobs(h, w, targets, temperature=1.0, chunk=chunk)[0].sum()  # noqa: E731
    compiled = jax.jit(jax.grad(f, (0, 1))).lower(hidden, unembedding).compile()
    return compiled.memory_analysis().temp_size_in_bytes

  grown = peak(512) - peak(128)
  assert grown < 0.1 * B * (512 - 128) * vocabulary * 4
