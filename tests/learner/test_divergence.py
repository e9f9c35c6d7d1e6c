"""The divergence from teachers in the log-prob pass, against full logits, and in float64 with its slope."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from grpojax import models, objective
from grpojax.learner import divergence, logprobs, rows
from grpojax.learner.state import create
from grpojax.learner.update import make_update
from grpojax.recipes import base, distill
from grpojax.types import Batch

P, G, L, T, V = 2, 2, 4, 7, 23
LENGTH = np.array([[7, 3], [1, 6]])


def model_of(**sizes):
  config = base.get_config("tiny").model
  config.update(**sizes)
  return models.build(config, V)


STUDENT, TEACHER = model_of(), model_of(hidden_size=48, num_hidden_layers=3)
MIXTURE = model_of(num_experts=3, num_experts_per_tok=2, attention_bias=False)


def made():
  rng = np.random.default_rng(0)
  tokens, prompt_length = rng.integers(0, V, (P, G, L + T), np.int32), np.array([[4, 2], [3, 4]], np.int32)
  return tokens, prompt_length, sharp(STUDENT, 0), sharp(TEACHER, 1)


def sharp(model, seed):
  """Parameters whose distributions are far from flat."""
  params = jax.jit(model.init)(jax.random.key(seed))
  return jax.tree.map(lambda x: 3 * x if x.ndim == 2 else x, params)


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
  how = dict(number=None, divergence=of, temperature=0.7, chunk=3)
  found = lambda heads, hidden: divergence.token_divergences(heads, hidden, **how)
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
  logp = divergence.make_logp(STUDENT, [TEACHER], of, T, temperature=temperature, chunk=chunk)
  mask = np.arange(T) < LENGTH[..., None]

  def ours(params):
    *outs, found = logp(params | {divergence.TEACHER: (teacher,)}, tokens, prompt_length)
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
  divergence.check_vocabulary("one", STUDENT, TEACHER)
  with pytest.raises(ValueError, match="the head of 'two' has 24 tokens for the policy's 23; take"):
    divergence.check_vocabulary("two", STUDENT, other)


def in_float64(kind, student, teacher, temperature, beta):
  """(divergence, its slope by the student's logits) of logits [V], by the formulas in numpy."""
  p, q = (np.exp(z / temperature) / np.exp(z / temperature).sum() for z in (student, teacher))
  if kind == "forward_kl":
    return (q * np.log(q / p)).sum(), (p - q) / temperature
  if kind == "reverse_kl":
    value = (p * np.log(p / q)).sum()
    return value, p * (np.log(p / q) - value) / temperature
  m = beta * q + (1 - beta) * p
  slope = (1 - beta) * np.log(p / m)  # by p
  value = beta * (q * np.log(q / m)).sum() + (p * slope).sum()
  return value, p * (slope - (p * slope).sum()) / temperature


@pytest.mark.parametrize("kind", divergence.KINDS)
def test_of_three_teachers_each_row_has_its_own_in_float64(kind, B=5, temperature=0.7, beta=0.3):
  """Mean over some tokens, and its gradient by the student's head and hidden states."""
  rng, number = np.random.default_rng(0), np.array([2, 0, 1, 2, 0])
  widths = 5, 8, 6, 5  # the student's first
  heads, hidden = ([rng.normal(0, 0.6, (*of, D)) for D in widths] for of in ((V,), (B, T)))
  on = np.arange(T) < np.array([7, 2, 5, 1, 4])[:, None]
  how = dict(divergence=divergence.of(kind, beta), temperature=temperature, chunk=3)

  def ours(matrix, hidden_of_student):
    decoders = Head(matrix), *map(Head, map(jnp.float32, heads[1:]))
    seen = hidden_of_student, *map(jnp.float32, hidden[1:])
    found = divergence.token_divergences(decoders, seen, jnp.array(number), **how)
    return jnp.where(on, found, 0.0).sum() / on.sum()

  loss, slopes = jax.value_and_grad(ours, (0, 1))(jnp.float32(heads[0]), jnp.float32(hidden[0]))
  expected, of_head, of_hidden = 0.0, np.zeros((V, 5)), np.zeros((B, T, 5))
  for b, t in zip(*np.nonzero(on), strict=True):
    which = 1 + number[b]
    logits = heads[0] @ hidden[0][b, t], heads[which] @ hidden[which][b, t]
    value, slope = in_float64(kind, *logits, temperature, beta)
    expected += value / on.sum()
    of_head += np.outer(slope, hidden[0][b, t]) / on.sum()
    of_hidden[b, t] = heads[0].T @ slope / on.sum()
  np.testing.assert_allclose(loss, expected, rtol=2e-6)
  np.testing.assert_allclose(slopes[0], of_head, atol=2e-7)
  np.testing.assert_allclose(slopes[1], of_hidden, atol=2e-7)


def one_update(params, teachers, batch, microbatches):
  """(loss, gradient) of GKD alone, of the rows of a batch that are valid."""
  (theirs, frozen), config = zip(*teachers, strict=True), base.get_config("tiny")
  distill.learn_from_teacher(config)
  config.objective.rescale = dict(fn="identity")
  config.objective.correct = dict()
  config.objective.component.kd = dict(fn="gkd", coef=0.5, stream="actions")
  logp = divergence.make_logp(STUDENT, theirs, divergence.of("jsd", 0.3), T, temperature=0.7, chunk=3)
  keep, layout = optax.trace(0.0), rows.single(logp, microbatches, ("teacher",))  # the gradient is its state
  update = jax.jit(make_update(layout, keep, optax.constant_schedule(0.0)))
  frozen = {divergence.TEACHER: frozen}
  state, metrics = update(create(params, keep), objective.build(config.objective), batch, frozen)
  assert metrics["loss"] == metrics["loss/gkd"] > 0
  return metrics["loss"], state.opt_state.trace


@pytest.mark.slow
@pytest.mark.parametrize("microbatches", [1, 2])
def test_two_teachers_of_a_mixed_batch_cost_what_each_costs_of_its_own_rows(microbatches):
  """Each by itself over the same number of tokens; of one row, which is not valid, neither."""
  tokens, prompt_length, params, teacher = made()
  teachers, number = [(TEACHER, teacher), (MIXTURE, sharp(MIXTURE, 2))], np.array([[0, 1], [1, 0]])
  valid = np.array([[True, True], [True, False]])
  mask = np.float32(np.arange(T) < LENGTH[..., None])
  nothing = np.zeros((P, G), np.float32)
  batch = Batch(
    mask, nothing, nothing, valid, valid, old_logp=np.zeros_like(mask), tokens=tokens, length=LENGTH,
    prompt_length=prompt_length, extra=dict(teacher=number),
  )  # fmt: skip
  loss, gradient = one_update(params, teachers, batch, microbatches)
  count = lambda rows: mask[rows].sum() / mask[valid].sum()
  expected, slopes = 0.0, jax.tree.map(jnp.zeros_like, params)
  for n, one in enumerate(teachers):
    own = valid & (number == n)
    alone = batch._replace(valid=own, extra=dict(teacher=np.zeros_like(number)))
    part, slope = one_update(params, [one], alone, microbatches)
    expected += count(own) * part
    slopes = jax.tree.map(lambda x, y, own=own: x + count(own) * y, slopes, slope)
  np.testing.assert_allclose(loss, expected, rtol=1e-6)
  for x, y in zip(*map(jax.tree.leaves, (gradient, slopes)), strict=True):
    np.testing.assert_allclose(x, y, atol=2e-6 * np.abs(y).max() + 1e-9)
