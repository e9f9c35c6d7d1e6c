"""Samples are a function of the request alone, and their log-probs are the learner's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from grpojax import models
from grpojax.learner.logprobs import response_logprobs
from grpojax.recipes import base
from grpojax.rollout import sampler
from grpojax.rollout.sampler.token_sampling import (
  SamplingParams,
  draw_by_blocks,
  filtered,
  sample_token,
)
from grpojax.runtime import sharding

V, L, T, G = 40, 10, 24, 3
EOS = (3, 5)


@pytest.fixture(scope="module")
def policy():
  model = models.build(base.get_config("tiny").model, V)
  params = model.init(jax.random.key(0))
  # Sharper than random, so that tokens depend on the prompt and not on the draw alone.
  return model, params | {"embedding": params["embedding"] * 10}


def prompts(count=6, width=L):
  rng = np.random.default_rng(1)
  length = rng.integers(2, 8, count)
  tokens = np.zeros((count, width), np.int32)
  for row, n in enumerate(length):
    tokens[row, width - n :] = rng.integers(6, V, n)
  return tokens, length.astype(np.int32), np.arange(100, 100 + count, dtype=np.int32)


@functools.cache
def programs(sampling, group_size, budget):
  model = models.build(base.get_config("tiny").model, V)
  built = sampler.static_batch.build(
    model, group_size=group_size, max_tokens=budget, sampling=sampling, eos_ids=EOS
  )
  return tuple(map(jax.jit, built))


SAMPLED = SamplingParams()


def run(policy, tokens, length, ids, sampling=SAMPLED, key=0, group_size=G, budget=T):
  prefill, decode = programs(sampling, group_size, budget)
  prefilled = prefill(policy[1], tokens, length)
  return jax.tree.map(np.asarray, decode(policy[1], prefilled, jax.random.key(key), ids))


def same(a, b):
  for x, y in zip(a[:3], b[:3], strict=True):
    np.testing.assert_array_equal(x, y)
  np.testing.assert_allclose(a.sampler_logp, b.sampler_logp, atol=1e-5)
  np.testing.assert_allclose(a.sampler_entropy, b.sampler_entropy, atol=1e-4)


def test_same_request_same_tokens_whatever_the_batch(policy):
  tokens, length, ids = prompts()
  whole = run(policy, tokens, length, ids)
  order = np.array([4, 0, 5, 2, 1, 3])
  shuffled = run(policy, tokens[order], length[order], ids[order])
  same(shuffled, jax.tree.map(lambda x: x[order], whole))
  same(run(policy, tokens[:2], length[:2], ids[:2]), jax.tree.map(lambda x: x[:2], whole))
  same(run(policy, *prompts(width=L + 7)), whole)
  fewer = run(policy, tokens, length, ids, group_size=2)
  same(fewer, jax.tree.map(lambda x: x[:, :2], whole))


def test_other_seed_prompt_or_sample_other_tokens(policy):
  tokens, length, ids = prompts()
  whole = run(policy, tokens, length, ids)
  assert (run(policy, tokens, length, ids, key=1).tokens != whole.tokens).any()
  assert (run(policy, tokens, length, ids + 1).tokens != whole.tokens).any()
  assert (whole.tokens[:, 0] != whole.tokens[:, 1]).any()


@pytest.mark.slow
def test_same_tokens_on_eight_devices(policy):
  model, params = policy
  tokens, length, ids = prompts(count=8)
  mesh = sharding.make_mesh(base.get_config().mesh)
  assert mesh.shape["data"] == 8
  how = dict(group_size=G, max_tokens=T, sampling=SamplingParams(), eos_ids=EOS)
  prefill, decode = sampler.static_batch.build(model, **how)
  rows = sharding.batch_sharding(mesh)
  everywhere = sharding.replicated(mesh)
  params_8, key = jax.device_put((params, jax.random.key(0)), everywhere)
  tokens_8, length_8, ids_8 = sharding.to_device(mesh, (tokens, length, ids))
  prefilled = jax.jit(prefill, out_shardings=rows)(params_8, tokens_8, length_8)
  rollout = jax.jit(decode, out_shardings=rows)(params_8, prefilled, key, ids_8)
  same(sharding.to_host(rollout), run(policy, tokens, length, ids))


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_logps_and_entropies_are_those_of_a_fresh_forward_pass(policy, temperature):
  model, params = policy
  tokens, length, ids = prompts()
  rollout = run(policy, tokens, length, ids, SamplingParams(temperature))
  repeat = lambda x: np.repeat(x[:, None], G, axis=1)
  rows = np.concatenate([repeat(tokens), rollout.tokens], axis=-1)
  scored = lambda params, rows, length: response_logprobs(
    model.bind(params), rows, length, T, temperature=temperature, chunk=7
  )
  logp, entropy, *_ = jax.jit(scored)(params, rows, repeat(length))
  real = np.arange(T)[None, None] < rollout.length[..., None]
  np.testing.assert_allclose(rollout.sampler_logp[real], np.asarray(logp)[real], atol=1e-5)
  np.testing.assert_allclose(rollout.sampler_entropy[real], np.asarray(entropy)[real], atol=1e-4)


def test_every_eos_ends_a_response_and_is_part_of_it(policy):
  rollout = run(policy, *prompts(count=40))
  real = np.arange(T)[None, None] < rollout.length[..., None]
  is_eos = np.isin(rollout.tokens, EOS) & real
  last = np.take_along_axis(rollout.tokens, rollout.length[..., None] - 1, axis=-1)[..., 0]
  np.testing.assert_array_equal(np.isin(last, EOS), rollout.ended)
  np.testing.assert_array_equal(is_eos.sum(-1), rollout.ended)  # none before the end
  assert set(last[rollout.ended].tolist()) == set(EOS)
  assert (rollout.length[~rollout.ended] == T).all() and (~rollout.ended).any()
  for known in rollout.tokens, rollout.sampler_logp, rollout.sampler_entropy:
    assert (known[~real] == 0).all()


def test_a_budget_of_one_token(policy):
  rollout = run(policy, *prompts(), budget=1)
  assert rollout.tokens.shape == (6, G, 1) and (rollout.length == 1).all()


def test_greedy_takes_the_likeliest_token_at_every_step(policy):
  model, params = policy
  tokens, length, ids = prompts(count=3)
  rollout = run(policy, tokens, length, ids, SamplingParams(temperature=0), group_size=1)
  rows = np.concatenate([tokens, rollout.tokens[:, 0]], axis=-1)
  logits = lambda decoder: decoder(rows, L - length) @ decoder.unembedding().T
  likeliest = np.argmax(jax.jit(lambda params: logits(model.bind(params)))(params), axis=-1)[:, L - 1 : -1]
  real = np.arange(T)[None] < rollout.length
  np.testing.assert_array_equal(rollout.tokens[:, 0][real], likeliest[real])


def kept_by_the_books(logits, sampling):
  """Filters written out with sorting and loops, in float64."""
  logits = np.asarray(logits, np.float64) / sampling.temperature
  kept = set(range(len(logits)))
  if sampling.top_k:
    kept = set(sorted(kept, key=lambda i: -logits[i])[: sampling.top_k])
  if sampling.top_p < 1:
    p = {i: np.exp(logits[i]) for i in kept}
    total, mass, nucleus = sum(p.values()), 0.0, set()
    for i in sorted(kept, key=lambda i: -logits[i]):
      if mass / total < sampling.top_p:
        nucleus.add(i)
      mass += p[i]
    kept = nucleus
  if sampling.min_p:
    best = max(np.exp(logits[i]) for i in kept)
    kept = {i for i in kept if np.exp(logits[i]) >= sampling.min_p * best}
  return kept


@pytest.mark.parametrize("values", [(1, 5), (0.7, 0, 0.8), (1.3, 0, 1.0, 0.2), (0.9, 12, 0.7, 0.1)])
def test_filters_keep_what_their_definitions_keep(values):
  sampling = SamplingParams(*values)
  logits = np.random.default_rng(2).normal(size=(20, V)).astype(np.float32) * 2
  out = np.asarray(jax.jit(lambda logits: filtered(logits, sampling))(logits))
  for row in range(20):
    assert set(np.flatnonzero(np.isfinite(out[row]))) == kept_by_the_books(logits[row], sampling)


def test_draws_follow_the_distribution_and_report_its_logp_and_entropy():
  logits = jnp.asarray([[0.0, 1.0, 2.0, -1.0, 0.5]])
  sampling, draws = SamplingParams(temperature=0.8, top_k=3), 20_000
  draw = lambda keys: sample_token(keys, 0, jnp.broadcast_to(logits, (draws, 5)), sampling)
  tokens, logp, entropy = jax.jit(draw)(jax.random.split(jax.random.key(0), draws))
  p = np.exp(np.array([1.0, 2.0, 0.5]) / 0.8)
  p /= p.sum()
  share = np.bincount(tokens, minlength=5) / draws
  np.testing.assert_allclose(share[[1, 2, 4]], p, atol=4 * np.sqrt(0.25 / draws))
  assert share[0] == share[3] == 0
  np.testing.assert_allclose(np.exp(logp)[np.asarray(tokens) == 4], p[2], rtol=1e-5)
  np.testing.assert_allclose(entropy, -(p * np.log(p)).sum(), rtol=1e-5)


@pytest.mark.parametrize("vocabulary", [5, 256, 700])
def test_draws_by_blocks_follow_the_softmax(vocabulary):
  """By a chi-square test of a false alarm in 10^6, and never a token that a filter cut."""
  rng, draws = np.random.default_rng(vocabulary), 200_000
  logits = rng.normal(size=vocabulary).astype(np.float32) * 2
  logits[rng.random(vocabulary) < 0.3] = -np.inf
  keys = jax.random.split(jax.random.key(3), draws).reshape(20, -1)
  draw = lambda keys: draw_by_blocks(keys, jnp.broadcast_to(logits, (len(keys), vocabulary)))
  optimised = dict(xla_backend_optimization_level=2)  # as other programs of tests are not: this is a long one
  draws_of = jax.jit(lambda keys: jax.lax.map(draw, keys), compiler_options=optimised)
  counts = np.bincount(np.ravel(draws_of(keys)), minlength=vocabulary)
  wanted = draws * np.exp(logits.astype(np.float64)) / np.exp(logits.astype(np.float64)).sum()
  assert not counts[wanted == 0].any()
  seen = wanted > 5  # as the test wants them; the others together are one kind
  got, want = (np.append(x[seen], x[~seen].sum()) for x in (counts, wanted))
  got, want = (x[want > 0] for x in (got, want))
  assert stats.chisquare(got, want * got.sum() / want.sum()).pvalue > 1e-6


def test_a_draw_is_a_token_that_can_be():
  """Certain, of ties, of weights that vanish beside another; of NaNs, an infinite logit, or all cut."""
  logits = np.full((6, 600), -np.inf, np.float32)
  logits[0, 599], logits[1, 300:302], logits[3], logits[5] = 0.0, 1.0, np.nan, 0.0
  logits[5, 400] = np.inf
  logits[2] = np.where(np.arange(600) == 257, 80.0, -80.0)
  keys = jax.random.split(jax.random.key(0), 500)
  drawn = np.array(jax.vmap(lambda key: draw_by_blocks(jax.random.split(key, 6), logits))(keys))
  assert set(drawn[:, 0]) == {599} and set(drawn[:, 1]) == {300, 301} and set(drawn[:, 2]) == {257}
  assert ((drawn[:, 3:5] >= 0) & (drawn[:, 3:5] < 600)).all() and set(drawn[:, 5]) == {400}
