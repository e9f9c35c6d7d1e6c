"""Mixtures in the loop: load balance, shared prompts, experts over devices, replay of routing (R2, R3)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import test_learner
from objective_toys import recipe

from grpojax import models, train
from grpojax.data import text
from grpojax.learner import batching, logprobs, optimizer, packing
from grpojax.rollout.dynamic_sampling import Groups
from grpojax.runtime import metrics
from grpojax.train import cold_start
from grpojax.train import policy as policy_lib
from grpojax.types import Scored

pytestmark = pytest.mark.usefixtures("quick_jobs")
NOISE = 0.003  # on router weights of deviation 0.18: few tokens switch, and gates hardly move


def even(sample):
  """Right or wrong by a coin that every policy can flip, so that the smallest one has mixed groups."""
  return float(sample.length % 2 == 0)


def tiny(cache, **changes):
  config = recipe("moe")
  config.update(cache_dir=str(cache), verbose=False, steps=2, **changes)
  config.rollout.prompts = 16
  config.data.train = 64
  config.eval.update(every=9, prompts=4)
  config.mesh.data = 1
  with config.unlocked():
    config.reward.accuracy = dict(fn=f"{__name__}:even")
  return config


def start(config, workdir):
  train.run(train.prepare(config, workdir))
  timed = ("time/", "tokens_per_second/", "memory/", "wall")
  records = [r for r in metrics.read(workdir) if r["kind"] == "train"]
  return [{k: v for k, v in r.items() if not k.startswith(timed)} for r in records]


@pytest.mark.slow
def test_a_mixture_trains_resumes_and_is_the_same_on_four_devices_in_two_pieces(cache, tmp_path):
  whole = start(tiny(cache), tmp_path / "whole")
  for r in whole:
    assert r["grad_norm"] > 0 and r["sampling/sampling_logp_difference/max"] < 1e-4
    balance = r["loss/load_balance"] / 1e-3
    assert 2 <= balance < 4 and r["loss"] == pytest.approx(r["loss/policy"] + 1e-3 * balance, rel=1e-4)

  cut = tiny(cache)
  cut.steps = 1
  start(cut, tmp_path / "cut")
  assert start(tiny(cache), tmp_path / "cut") == whole

  four = tiny(cache, microbatches=2, rows="single")
  four.mesh.expert = 4
  alone = tiny(cache)  # each device has all experts, and adds up its own gradient
  alone.mesh.data = 4
  noise = {"grad_noise"}  # of two pieces that are not packed
  for config, folder, more in ((four, "four", noise), (alone, "alone", set())):
    for a, b in zip(start(config, tmp_path / folder), whole, strict=True):
      assert a.keys() - b.keys() == more
      assert a["reward"] == b["reward"] and a["num_tokens"] == b["num_tokens"]
      for name in ("loss", "loss/load_balance", "grad_norm", "entropy"):
        assert a[name] == pytest.approx(b[name], rel=1e-3, abs=1e-6), name


@pytest.mark.parametrize("replayed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_prompt_that_a_mixture_computes_once_counts_for_each_of_its_responses(replayed):
  """The load, its loss and all gradients are those of single rows, where some sequences do not count."""
  P, G, L, T = test_learner.P, test_learner.G, test_learner.L, test_learner.T
  model, rng = models.build(recipe("moe").model, test_learner.V), np.random.default_rng(0)
  batch, how = test_learner.packed(test_learner.make_batch(), 2, P * G, sharing=3)  # all in one piece
  column = np.arange(L + T - 1)
  counted = (column >= L - batch.prompt_length[..., None]) & (column < L + batch.length[..., None] - 1)
  counted[0, 1] = counted[3] = False
  routing = None
  if replayed:  # of every second token, and of a prompt's the same for all of its responses
    routing = np.asarray(models.unrouted(model.spec, P, G, L + T - 1)).copy()
    experts = np.broadcast_to(np.arange(model.spec.moe.num_experts), (*routing.shape[:-1], 4))
    routing[..., ::2, :, :] = rng.permuted(experts, axis=-1)[..., ::2, :, : routing.shape[-1]]
    routing[..., :L, :, :] = routing[:, :1, :L]
  inputs = batch.tokens, batch.prompt_length, routing, counted
  alone = lambda params: logprobs.make_logp(model, **test_learner.LOGP)(params, *inputs)
  logp_of = logprobs.make_packed_logp(model, temperature=1.0, chunk=4)
  in_rows = lambda params: packing.microbatch_logp(how, logp_of, *inputs, batch.packing_index)(params, 0)
  cost = rng.uniform(0.5, 1.5, model.spec.moe.num_experts).astype(np.float32)

  def loss(params, of):
    logp, entropy, routed = of(params)
    return (batch.mask * logp).sum() + models.load_balance_loss(routed.load, cost), (logp, entropy, routed)

  params = model.init(jax.random.key(1))
  gradient = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)
  (want, expected), grads = gradient(params, alone)
  (found, got), got_grads = gradient(params, in_rows)
  assert float(found) == pytest.approx(float(want), rel=1e-5)
  np.testing.assert_allclose(got[2].load, expected[2].load, rtol=1e-4)
  assert expected[2].load[0, 2, 0] == counted.sum() or replayed
  for x, y in zip(got[:2], expected[:2], strict=True):
    np.testing.assert_allclose(x * batch.mask, y * batch.mask, atol=2e-5)
  scale = max(float(np.abs(x).max()) for x in jax.tree.leaves(grads))
  for x, y in zip(jax.tree.leaves(got_grads), jax.tree.leaves(grads), strict=True):
    np.testing.assert_allclose(x, y, atol=1e-5 * scale)


@pytest.fixture(scope="module")
def recorded(cache, tmp_path_factory):
  """A job of R3, random parameters, and what a sampler whose router is slightly another has answered."""
  job = prepared(cache, "R3", tmp_path_factory.mktemp("R3"))
  params = jax.jit(job.model.init)(jax.random.key(0))
  prompts = job.data.stream.next()
  rollout, _ = job.programs.sample(moved(params), prompts, jax.random.key(1))
  valid = np.ones(rollout.length.shape, bool)
  reward = (rollout.length % 2).astype(np.float32)
  return job, params, Groups(prompts, rollout, Scored(reward, reward, valid, {}, {}))


def prepared(cache, replay, workdir):
  config = tiny(cache, routing_replay=replay, load_balance=0.0, updates_per_rollout=1)
  return train.prepare(config, workdir)


def moved(params):
  """The same policy behind a router that has moved a little."""
  router = params["layers"]["moe"]["router"]
  other = router + NOISE * jax.random.normal(jax.random.key(5), router.shape)
  return params | {"layers": params["layers"] | {"moe": params["layers"]["moe"] | {"router": other}}}


def gap(batch):
  """Largest |log mu - log pi_old| of all tokens."""
  return float((abs(batch.sampler_logp - batch.old_logp) * batch.mask).max())


@pytest.mark.slow
def test_replaying_the_samplers_choice_closes_the_gap_that_its_router_opens(recorded):
  """R3.  What is left is that of the gates, which are the learner's own."""
  job, params, groups = recorded
  batch = batching.make_batches(job.config, job.mesh, job.pack, groups, None)[0]
  compare = functools.partial(logprobs.add_policy_logprobs, job.programs.logp, params, params)
  free, replayed = compare(batch._replace(routing=None)), compare(batch)
  fed = batch.routing[..., 0, 0] >= 0
  chosen = lambda routing: np.sort(routing, -1)  # in whatever order
  switched = (chosen(free.routing) != chosen(batch.routing)).any((-1, -2)) & fed
  assert 0.005 < switched.sum() / fed.sum() < 0.3
  np.testing.assert_array_equal(
    np.where(fed[..., None, None], replayed.routing, -1), np.asarray(batch.routing)
  )
  assert gap(free) > 0.05 and gap(replayed) < 0.2 * gap(free)
  # The reference, here the same policy, routes for itself.
  on = batch.mask > 0
  np.testing.assert_allclose(replayed.ref_logp[on], free.old_logp[on], atol=1e-5)

  job.config.load_balance = 1e-3  # counts what the sampler fed, but nothing of rows without a reward
  valid = groups.scored.valid.copy()
  valid[0] = False
  scored = groups.scored._replace(valid=valid)
  dealt = batching.make_batches(job.config, job.mesh, job.pack, groups._replace(scored=scored), None)[0]
  np.testing.assert_array_equal(dealt.balance_mask, fed & valid[..., None])


@pytest.mark.slow
def test_replaying_the_choice_of_pi_old_is_exact_first_and_holds_when_the_router_moves(
  cache, recorded, tmp_path
):
  """R2.  Without replay the same update sees ratios that only the switched experts explain."""
  _, params, groups = recorded
  job = prepared(cache, "R2", tmp_path)
  groups = groups._replace(rollout=groups.rollout._replace(routing=None))
  batch = batching.make_batches(job.config, job.mesh, job.pack, groups, None)[0]
  batch = logprobs.add_policy_logprobs(job.programs.logp, params, None, batch)
  update = lambda params, batch: job.programs.update(
    job.programs.fresh(jax.tree.map(jnp.copy, params)), job.objective, batch, {}
  )
  first, seen = update(params, batch)
  natural, expected = update(params, batch._replace(routing=None))
  assert seen["ppo_kl"] < 1e-9 and seen["grad_norm"] > 1e-3
  assert float(seen["grad_norm"]) == pytest.approx(float(expected["grad_norm"]), rel=1e-5)
  for a, b in zip(*map(jax.tree.leaves, (first.opt_state, natural.opt_state)), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-6)  # Adam's moments: the gradient, leaf by leaf

  later = logprobs.add_policy_logprobs(job.programs.logp, moved(params), None, batch)
  assert (later.routing == batch.routing).all()
  assert update(moved(params), later)[1]["ppo_kl"] < 1e-9
  assert update(moved(params), later._replace(routing=None))[1]["ppo_kl"] > 1e-6


def test_muon_sees_each_expert_as_a_matrix_of_its_own():
  model = models.build(recipe("moe").model, 30)
  mixture = lambda tree: {"layers": {"moe": tree["layers"]["moe"]}}
  tx = optimizer.make_optimizer(cold_start.OPTIMIZER, optax.constant_schedule(1.0), mixture(model.axes))
  step = jax.jit(lambda grads: tx.update(grads, tx.init(grads), grads)[0])
  grads = mixture(model.init(jax.random.key(1)))
  stretch = lambda g: g.at[:, 0].multiply(jnp.arange(32.0)[:, None]) if g.ndim == 4 else g
  before, after = step(grads), step(jax.tree.map(stretch, grads))
  for name in ("gate", "up", "down"):
    change = abs(before["layers"]["moe"][name] - after["layers"]["moe"][name]).max((0, 2, 3))
    assert (change > 1e-3).tolist() == [True, False, False, False], (name, change)


@pytest.mark.parametrize("changes", [dict(routing_replay="R3"), dict(load_balance=1e-3)])
def test_a_dense_model_is_refused(changes):
  config = recipe("grpo")
  config.update(**changes)
  with pytest.raises(ValueError, match=f"config.{next(iter(changes))} = .* is for mixtures"):
    policy_lib.build_model(config, text.load_tokenizer())
