"""Terms with tokens of their own: denominators, what they leave alone, pairs in pieces, and identities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from objective_toys import random_batch
from test_objective_properties import close, config, solve

from grpojax import objective as lib
from grpojax.objective import preference, terms, text, vocabulary
from grpojax.types import OBSERVATION

NOTHING = dict(advantage=dict(fn="none"))
SEEDS = (0, 1)
each_seed = pytest.mark.parametrize("seed", SEEDS)


def component(fn="ce", stream="right", coef=0.1, **knobs):
  return {"it": dict(fn=fn, stream=stream, coef=coef, **knobs)}


def _lagging(batch, steps: int):
  return batch._replace(extra=batch.extra | dict(lag=np.full(batch.mask.shape, steps)))


@each_seed
def test_a_component_adds_its_own_loss_and_changes_no_other_tokens_rate(seed):
  batch, theta = random_batch(seed)
  alone, added = NOTHING | dict(component=component()), dict(component=component())
  parts = [solve(config(**slots), batch, theta["logp"]) for slots in ({}, alone, added)]
  for policy, own, both in zip(*parts, strict=True):
    close(np.add(policy, own), both)
  assert np.abs(parts[1][1]).max() > 1e-3


@each_seed
def test_cross_entropy_of_all_tokens_is_reinforce_with_a_reward_of_one(seed):
  batch, theta = random_batch(seed)
  batch = batch._replace(reward=np.ones_like(batch.reward))
  sft = config(**NOTHING, component=component(stream="actions", coef=1.0))
  slots = dict(advantage=dict(fn="raw"), surrogate=dict(fn="reinforce"), aggregate=dict(fn="token_mean"))
  for one, two in zip(*(solve(o, batch, theta["logp"]) for o in (sft, config(**slots))), strict=True):
    close(one, two)


def test_observations_are_learned_though_the_policy_did_not_choose_them():
  """And rows that are not valid are left out; the denominator is the number of these tokens alone."""
  batch, theta = random_batch(0)
  o = config(**NOTHING, component=component(stream="observations", coef=0.5))
  _, grad = solve(o, batch, theta["logp"])
  on = (batch.extra["kind"] == OBSERVATION) & batch.valid[..., None]
  assert on.any() and not (on & (batch.mask > 0)).any()
  close(grad, np.where(on, -0.5 / on.sum(), 0.0))


def test_a_filter_of_the_policy_term_is_none_of_a_component():
  batch, theta = random_batch(0)
  filtered = dict(select=dict(finished=dict(fn="finished")))
  one, two = (
    solve(config(**NOTHING, **slots, component=component()), batch, theta["logp"]) for slots in ({}, filtered)
  )
  close(one[1], two[1])


def test_a_stream_without_a_token_costs_nothing():
  batch, theta = random_batch(0)
  wrong = batch._replace(accuracy=0 * batch.accuracy)
  loss, grad = solve(config(**NOTHING, component=component()), wrong, theta["logp"])
  assert loss == 0 and not grad.any()


@pytest.mark.parametrize("fn", ["dpo", "ipo", "simpo"])
def test_pairs_cut_in_two_by_microbatches_add_up_to_the_loss_of_pairs(fn):
  """As packed microbatches cut: a row's weights are 0 where it is absent.  Against the loss itself."""
  batch, theta = random_batch(0)
  objective = lib.build(config(**NOTHING, preference={"it": dict(fn=fn, coef=0.7)}))
  on = batch.mask * batch.valid[..., None]
  best, worst, paired = jax.vmap(terms._pair)(batch.reward, batch.valid & (on > 0).any(-1))
  both = np.stack([best, worst], -1)[np.asarray(paired)]
  take = lambda x: jnp.take_along_axis(x[np.asarray(paired)], both, axis=1)

  def direct(logp):
    pairs = terms.Pair(take((logp * on).sum(-1)), take((batch.ref_logp * on).sum(-1)), take(on.sum(-1)))
    return 0.7 * jax.vmap(getattr(preference, fn))(pairs).mean()

  def piece(logp, rows):
    prepared = lib.prepare(objective, batch, theta["logp"])
    keep = lambda x: jnp.where(rows[None, :, None], x, 0.0)
    names = "mask", "weight", "token_mean_weight", "preference"
    part = prepared._replace(**jax.tree.map(keep, {name: getattr(prepared, name) for name in names}))
    return lib.loss(objective, logp, part)[0]

  rows = np.arange(batch.reward.shape[1]) % 2 == 0
  with jax.enable_x64(True):
    expected = jax.jit(jax.value_and_grad(direct))(theta["logp"])
    of_piece = jax.jit(jax.value_and_grad(piece))
    total = jax.tree.map(lambda *x: sum(x), *(of_piece(theta["logp"], here) for here in (rows, ~rows)))
  close(total[0], expected[0])
  close(total[1], expected[1])


@each_seed
def test_a_proximal_policy_one_step_behind_is_the_samplers_and_the_weight_is_one(seed):
  batch, theta = random_batch(seed)
  batch = _lagging(batch, 1)
  slots = dict(shape=dict(it=dict(fn="log_linear")), veto=dict(it=dict(fn="proximal_is")))
  bypass = dict(shape=dict(it=dict(fn="bypass")))
  for one, two in zip(*(solve(config(**s), batch, theta["logp"]) for s in (slots, bypass)), strict=True):
    close(one, two)


def test_far_behind_the_proximal_policy_the_gradient_is_that_of_weighted_reinforce():
  """α → 1: the ratio is 1, nothing is clipped, and the weight is π_θ / μ."""
  batch, theta = random_batch(0)
  batch = _lagging(batch, 10**9)
  slots = dict(shape=dict(it=dict(fn="log_linear")), veto=dict(it=dict(fn="proximal_is")))
  weighted = dict(shape=dict(it=dict(fn="bypass")), surrogate=dict(fn="cispo", w_max=np.inf))
  _, one = solve(config(**slots), batch, theta["logp"])
  _, two = solve(config(**weighted), batch, theta["logp"])
  close(one, two, 1e-8)
  assert np.abs(one).max() > 1e-3


def test_all_kept_is_a_plain_softmax_and_a_kept_token_alone_is_certain():
  logits = np.random.default_rng(0).normal(size=(3, 4))
  tokens, every = np.array([0, 3, 2]), np.ones((3, 4), bool)
  with jax.enable_x64(True):
    expected = np.take_along_axis(np.asarray(jax.nn.log_softmax(logits / 0.7)), tokens[:, None], 1)[:, 0]
    for kept in (every, ~every):
      close(vocabulary.kept_logprobs(logits, tokens, kept, 0.7), expected)
    alone = np.arange(4) == tokens[:, None]
    close(vocabulary.kept_logprobs(logits, tokens, alone, 0.7), 0)


def test_divergences_vanish_between_equals_and_the_mixed_one_tends_to_both():
  rng = np.random.default_rng(0)
  student, teacher = rng.normal(size=(2, 3, 6))
  with jax.enable_x64(True):
    forward, reverse = vocabulary.forward_kl(student, teacher), vocabulary.reverse_kl(student, teacher)
    close(forward, vocabulary.reverse_kl(teacher, student))
    close(vocabulary.forward_kl(student, teacher, top_k=6), forward)
    close(vocabulary.jsd(student, teacher, beta=1e-7) / 1e-7, forward, 1e-5)
    close(vocabulary.jsd(student, teacher, beta=1 - 1e-7) / 1e-7, reverse, 1e-5)
    for fn in (vocabulary.forward_kl, vocabulary.reverse_kl, vocabulary.jsd):
      close(fn(teacher, teacher), 0)
      assert np.min(fn(student, teacher)) > 0.01


def test_the_formula_names_a_term_with_its_tokens():
  o = config(component=component(), preference={"it": dict(fn="dpo", coef=1.0, beta=0.2)}).to_dict()
  loss, *lines = text.formula(o)
  assert loss.endswith("+ 0.1 · mean over right of ce + 1 · mean over pairs of dpo[beta 0.2]")
  assert any(line.startswith("l: ce = −log π") for line in lines)
  assert any(line.startswith("l: dpo[beta 0.2] = ") for line in lines)
