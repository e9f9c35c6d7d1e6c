"""The divergence from a teacher in the log-prob pass, against full logits and a derivative by jax."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpojax import models
from grpojax.learner import divergence, logprobs
from grpojax.recipes import base

P, G, L, T, V = 2, 2, 4, 7, 23
LENGTH = np.array([[7, 3], [1, 6]])


def model_of(**sizes):
  config = base.get_config("tiny").model
  config.update(**sizes)
  return models.build(config, V)


STUDENT, TEACHER = model_of(), model_of(hidden_size=48, num_hidden_layers=3)


def made():
  rng = np.random.default_rng(0)
  tokens, prompt_length = rng.integers(0, V, (P, G, L + T), np.int32), np.array([[4, 2], [3, 4]], np.int32)
  sharp = lambda params: jax.tree.map(lambda x: 3 * x if x.ndim == 2 else x, params)
  init = lambda model, seed: sharp(jax.jit(model.init)(jax.random.key(seed)))
  return tokens, prompt_length, init(STUDENT, 0), init(TEACHER, 1)


class Head(NamedTuple):
  """A decoder that is its head alone."""

  matrix: jax.Array  # [V, D]

  def logits(self, hidden):
    return hidden @ self.matrix.T


@pytest.mark.parametrize("kind", divergence.KINDS)
def test_chunk_by_chunk_it_is_that_of_all_logits_and_a_teacher_gets_no_gradient(kind):
  draw = lambda *shape: np.random.default_rng(len(shape) + shape[-1]).normal(0, 0.4, shape)
  heads = Head(draw(V, 5)), Head(draw(V, 8))
  hidden, of = (draw(3, T, 5), draw(3, T, 8)), divergence.of(kind, 0.3)
  found = lambda heads, hidden: divergence.token_divergences(heads, hidden, of, temperature=0.7, chunk=3)
  whole = lambda heads, hidden: of(*(head.logits(x) for head, x in zip(heads, hidden, strict=True)), 0.7)
  squares = lambda fn: jax.jit(jax.value_and_grad(lambda *x: (fn(*x) ** 2).sum(), (0, 1)))
  got, expected = squares(found)(heads, hidden), squares(whole)(heads, hidden)
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), got, expected)
  (student, teacher), (of_student, of_teacher) = got[1]
  assert np.any(student.matrix) and np.any(of_student)
  assert not np.any(teacher.matrix) and not np.any(of_teacher)


@pytest.mark.slow
@pytest.mark.parametrize("kind", divergence.KINDS)
def test_it_is_that_of_full_logits_of_each_completion_alone_and_so_is_its_gradient(kind, chunk=3):
  tokens, prompt_length, params, teacher = made()
  of, temperature = divergence.of(kind, 0.3), 0.7
  logp = divergence.make_logp(STUDENT, TEACHER, of, T, temperature=temperature, chunk=chunk)
  mask = np.arange(T) < LENGTH[..., None]

  def ours(params):
    *outs, found = logp(params | {divergence.TEACHER: teacher}, tokens, prompt_length)
    return jnp.where(mask, found, 0.0).sum(), (found, outs[:2])

  def by_hand(params):
    total = 0.0
    for p, g in np.ndindex(P, G):
      n, last = prompt_length[p, g], L + LENGTH[p, g]
      row = tokens[p, g, L - n : last][None]
      both = [m.bind(x) for m, x in ((STUDENT, params), (TEACHER, teacher))]
      hidden = [decoder(row, np.zeros(1, np.int32))[0, n - 1 : -1] for decoder in both]
      logits = (decoder.logits(x) / temperature for decoder, x in zip(both, hidden, strict=True))
      log_s, log_t = map(jax.nn.log_softmax, logits)
      kl = lambda one, other: (jnp.exp(one) * (one - other)).sum()
      if kind == "jsd":
        mixed = jnp.log(0.3 * jnp.exp(log_t) + 0.7 * jnp.exp(log_s))
        total += 0.3 * kl(log_t, mixed) + 0.7 * kl(log_s, mixed)
      else:
        total += kl(log_t, log_s) if kind == "forward_kl" else kl(log_s, log_t)
    return total

  (total, (found, outs)), grads = jax.jit(jax.value_and_grad(ours, has_aux=True))(params)
  expected, slopes = jax.jit(jax.value_and_grad(by_hand))(params)
  np.testing.assert_allclose(total, expected, rtol=1e-5)
  for x, y in zip(*map(jax.tree.leaves, (grads, slopes)), strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5 * np.abs(y).max() + 1e-6)
  plain = logprobs.make_logp(STUDENT, response_budget=T, temperature=temperature, chunk=chunk)
  jax.tree.map(np.testing.assert_array_equal, tuple(outs), jax.jit(plain)(params, tokens, prompt_length)[:2])
  assert found.shape == (P, G, T)


def test_heads_of_other_lengths_are_refused():
  other = models.build(base.get_config("tiny").model, V + 1)
  divergence.check_vocabularies(STUDENT, TEACHER)
  with pytest.raises(ValueError, match="the teacher's head has 24 tokens for the policy's 23; take"):
    divergence.check_vocabularies(STUDENT, other)
