"""Truncated sampling: the learner's log-probs are over the tokens that the sampler kept, as recorded."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from grpojax import models, train
from grpojax.learner import batching, logprobs, packing
from grpojax.learner.logprob_scan import token_logprobs
from grpojax.objective.vocabulary import kept_logprobs
from grpojax.recipes import base, grpo
from grpojax.rollout import sampler
from grpojax.rollout.sampler.token_sampling import SamplingParams, kept_tokens
from grpojax.runtime import metrics, sharding
from grpojax.types import Prompts

V, P, G, L, T, K = 40, 4, 3, 10, 12, 8
EOS = (3, 5)
SAMPLING = SamplingParams(temperature=0.8, top_k=K, top_p=0.95)


def sets(shape, vocabulary, seed=0):
  """Kept sets of random size [..., K], the target [...] in each; every fifth is not recorded."""
  rng = np.random.default_rng(seed)
  kept, target = np.full((*shape, K), -1, np.int32), np.zeros(shape, np.int32)
  for number, at in enumerate(np.ndindex(*shape)):
    size = rng.integers(1, K + 1)
    members = rng.permutation(vocabulary)[:size]
    target[at] = members[rng.integers(size)]
    if number % 5:
      kept[at][:size] = members
  return kept, target


@pytest.mark.parametrize("cap", [0.0, 3.0])
def test_the_scan_over_kept_tokens_equals_the_formula_in_float64(cap):
  B, columns, D = 3, 10, 8
  rng = np.random.default_rng(0)
  hidden, head = rng.normal(size=(B, columns, D)), rng.normal(size=(V, D))
  kept, target = sets((B, columns), V)
  inside = (np.arange(V) == kept[..., None]).any(-2)

  def formula(h, w):
    logits = h @ w.T
    logits = cap * jnp.tanh(logits / cap) if cap else logits
    every = jnp.broadcast_to(jnp.arange(V)[None, None], logits.shape)
    all_logps = jnp.stack([kept_logprobs(logits, every[..., v], inside, 0.7) for v in range(V)], -1)
    on = inside | ~inside.any(-1, keepdims=True)
    entropy = -jnp.where(on, jnp.exp(all_logps) * jnp.where(on, all_logps, 0), 0).sum(-1)
    return kept_logprobs(logits, jnp.asarray(target), inside, 0.7), entropy

  weigh = lambda outs: (outs[0] * jnp.arange(columns)).sum() - (outs[1] * jnp.arange(1, columns + 1)).sum()
  how = dict(temperature=0.7, chunk=4, cap=cap, kept=kept)
  scanned = lambda h, w: token_logprobs(h, w, target, **how)
  with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
    expected = jax.jit(formula)(hidden, head)
    slopes = jax.jit(jax.grad(lambda *x: weigh(formula(*x)), (0, 1)))(hidden, head)
  narrow = np.float32(hidden), np.float32(head)
  for got, want in zip(jax.jit(scanned)(*narrow), expected, strict=True):
    np.testing.assert_allclose(got, want, atol=5e-6)
  with jax.numpy_rank_promotion("allow"):
    found = jax.jit(jax.grad(lambda *x: weigh(scanned(*x)), (0, 1)))(*narrow)
  for got, want in zip(found, slopes, strict=True):
    np.testing.assert_allclose(got, want, atol=1e-4, rtol=1e-5)


def test_devices_that_share_rows_and_columns_change_nothing():
  sizes = dict.fromkeys((*sharding.AXES, "slices"), 1) | dict(data=2, context=2, tensor=2)
  mesh = sharding.make_mesh(ConfigDict(sizes))
  rng = np.random.default_rng(0)
  hidden, head = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 9, 8), (V, 8)))
  kept, target = sets((2, 9), V)

  def total(h, w, target, kept, mesh=None):
    logp, entropy = token_logprobs(h, w, target, temperature=0.7, chunk=4, kept=kept, mesh=mesh)
    return (logp * jnp.arange(9)[None] + entropy).sum()

  one, cut = (
    jax.jit(jax.value_and_grad(partial(total, mesh=m), (0, 1)))(hidden, head, target, kept)
    for m in (None, mesh)
  )
  for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(cut), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-4)


def test_a_token_that_was_kept_alone_has_no_gradient():
  hidden, head = np.ones((1, 1, 4), np.float32), np.eye(6, 4, dtype=np.float32)
  kept, target = np.array([[[2, -1]]], np.int32), np.array([[2]])
  total = lambda h: token_logprobs(h, head, target, temperature=1.0, chunk=1, kept=kept)[0].sum()
  value, slope = jax.value_and_grad(total)(hidden)
  assert value == 0
  np.testing.assert_array_equal(slope, 0)


def test_of_equally_likely_tokens_no_more_are_kept_than_the_bound():
  logits = np.array([[0.0, 2.0, 2.0, 2.0, 1.0]], np.float32)
  np.testing.assert_array_equal(kept_tokens(logits, SamplingParams(top_k=2)), [[1, 2]])
  np.testing.assert_array_equal(kept_tokens(logits, SamplingParams(top_k=4, top_p=0.5)), [[1, 2, -1, -1]])
  np.testing.assert_array_equal(kept_tokens(logits, SamplingParams(top_k=9)), [[1, 2, 3, 4, 0]])


@pytest.fixture(scope="module")
def sampled():
  """(model, params, prompts, rollouts of both samplers)."""
  model = models.build(base.get_config("tiny").model, V)
  params = model.init(jax.random.key(0))
  params = params | {"embedding": params["embedding"] * 10}
  rng = np.random.default_rng(1)
  length = rng.integers(2, 8, P).astype(np.int32)
  tokens = np.zeros((P, L), np.int32)
  for row, n in enumerate(length):
    tokens[row, L - n :] = rng.integers(6, V, n)
  ids = np.arange(P, dtype=np.int32)
  how = dict(group_size=G, max_tokens=T, sampling=SAMPLING, eos_ids=EOS, record_kept=True)
  prefill, decode = map(jax.jit, sampler.static_batch.build(model, **how))
  key = jax.random.key(0)
  static = decode(params, prefill(params, tokens, length), key, ids)
  begin, _, advance = map(jax.jit, sampler.continuous.build(model, slots=4, prefill_chunk=8, **how))
  state = begin(params, tokens, length, ids, key)
  _, slots, _ = advance(params, *state, np.int32(10**6))
  both = [jax.tree.map(np.asarray, rollout) for rollout in (static, slots)]
  return model, params, Prompts(tokens, length, ids, [{}] * P), both


def test_both_samplers_record_the_same_sets_and_draw_from_them(sampled):
  *_, (static, slots) = sampled
  np.testing.assert_array_equal(static.tokens, slots.tokens)
  np.testing.assert_array_equal(static.kept, slots.kept)
  on = np.arange(T) < static.length[..., None]
  drawn_from_it = (static.kept == static.tokens[..., None]).any(-1)
  assert (drawn_from_it == on).all()  # and nothing is recorded behind the end
  size = (static.kept >= 0).sum(-1)[on]
  assert size.min() >= 1 and size.max() == K and len(set(size)) > 3


@pytest.mark.parametrize("rows", ["single", "packed"])
def test_over_what_was_kept_the_learner_has_the_samplers_log_probs(sampled, rows):
  model, params, prompts, (rollout, _) = sampled
  lengths = np.repeat(prompts.length[:, None], G, axis=1)
  tokens = batching._sequences(prompts, rollout.tokens)
  if rows == "single":
    logp = logprobs.make_logp(model, response_budget=T, temperature=SAMPLING.temperature, chunk=5)
    score = lambda kept: logp(params, tokens, lengths, kept=kept)[0]
  else:
    spec = packing.PackSpec(T, 1, 2, L + 2 * (T - 1), True)
    index = packing.pack_sequences(lengths, rollout.length, spec)
    logp = logprobs.make_packed_logp(model, temperature=SAMPLING.temperature, chunk=5)
    score = lambda kept: packing.batch_logp(
      spec, logp, params, tokens, lengths, None, None, index, None, kept
    )[0]
  on = batching.action_mask(rollout) > 0
  got = np.asarray(jax.jit(score)(rollout.kept))
  np.testing.assert_allclose(got[on], rollout.sampler_logp[on], atol=2e-5)
  whole = np.asarray(jax.jit(lambda: score(None))())
  assert (rollout.sampler_logp[on] - whole[on]).mean() > 0.05  # -log of the mass that was kept


def short(sample):
  return float(sample.length < 8)


@pytest.mark.usefixtures("quick_jobs")
@pytest.mark.slow
@pytest.mark.parametrize("rows", ["packed", "single"])
def test_a_run_with_top_p_compares_like_with_like(cache, tmp_path, rows):
  """Rollout, batch, both passes and the reference are over the same tokens, before and after an update."""
  config = grpo.get_config("tiny")
  sizes = dict(steps=2, updates_per_rollout=1, microbatches=2)
  config.update(dict(cache_dir=str(cache), verbose=False, rows=rows) | sizes)
  config.rollout.update(top_k=6, top_p=0.8)
  config.reference = "init"
  config.objective.penalty = {"kl": dict(fn="kl_k3", beta=0.04)}
  config.reward.accuracy = dict(fn=f"{__name__}:short")
  config.mesh.data = 1
  config.eval.every = config.checkpoint.every = 100
  config.optimizer.warmup_steps = 0
  train.run(train.prepare(config, tmp_path))
  first, second = (r for r in metrics.read(tmp_path) if r["kind"] == "train")
  for record in first, second:
    assert record["sampling/sampling_logp_difference/max"] < 1e-5
    assert 1 < record["kept_set/mean_size"] <= 6
  assert abs(first["kl"]) < 1e-6 and first["grad_norm"] > 0
  assert second["kl"] > 1e-6
