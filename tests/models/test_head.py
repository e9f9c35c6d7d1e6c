"""A head in float32 beside activations in bfloat16: the same in the sampler and the learner."""

import jax
import numpy as np
import pytest
from objective_toys import recipe

from grpojax import models
from grpojax.learner import logprobs


def made(head_dtype: str):
  """(model, its parameters, tokens [1, 3, 12], hidden states and logits of all but their last)."""
  c = recipe("base", "tiny").model
  c.update(dtype="bfloat16", head_dtype=head_dtype)
  model = models.build(c, 30)
  params = jax.jit(model.init)(jax.random.key(0))
  tokens = np.random.default_rng(0).integers(0, 30, (1, 3, 12)).astype(np.int32)
  segment = models.left_padded(11, np.zeros(3, np.int32))

  @jax.jit
  def run(params):
    decoder = model.bind(params)
    hidden, _ = decoder.forward(tokens[0, :, :-1], segment)
    return hidden, decoder.logits(hidden)

  return model, params, tokens, *run(params)


@pytest.mark.parametrize("head_dtype", ["", "float32"])
def test_logits_are_products_of_the_heads_own_dtype(head_dtype):
  _, params, _, hidden, logits = made(head_dtype)
  assert hidden.dtype == "bfloat16" and logits.dtype == np.float32
  head = np.float64(params["embedding"])
  if not head_dtype:
    head = np.float64(jax.numpy.asarray(params["embedding"], "bfloat16"))
  np.testing.assert_allclose(logits, np.float64(hidden) @ head.T, atol=1e-6)


@pytest.mark.parametrize("head_dtype", ["", "float32"])
def test_the_learners_log_probs_are_those_of_these_logits(head_dtype):
  model, params, tokens, _, logits = made(head_dtype)
  logp_of = logprobs.make_logp(model, response_budget=11, temperature=1.0, chunk=4)
  logp, *_ = jax.jit(logp_of)(params, tokens, np.ones((1, 3), np.int32))
  expected = jax.nn.log_softmax(logits)
  chosen = np.take_along_axis(np.asarray(expected), tokens[0][:, 1:, None], -1)[..., 0]
  np.testing.assert_allclose(logp[0], chosen, atol=2e-6)
