"""A newer policy is taken up in the middle of what is sampled ahead: by hand, and stopped and resumed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_apart
import test_staleness

from grpojax import train
from grpojax.config import check
from grpojax.learner import logprobs
from grpojax.rollout import generate
from grpojax.rollout.prefetch import Prefetcher
from grpojax.rollout.sampler.engine import ALL

pytestmark = pytest.mark.usefixtures("quick_jobs")
SLOW = pytest.mark.slow
PIECE = 12  # decode steps


def config(cache, **changes):
  c = test_staleness.tiny(cache)
  c.objective.shape.bypass = dict(fn="bypass")
  c.update_from_flattened_dict({"steps": 6, "staleness": 1, "rollout.in_flight": PIECE} | changes)
  return c


def policies(job, number):
  make = jax.jit(job.model.init)
  return [make(jax.random.key(i)) for i in range(number)]


@pytest.mark.parametrize("depth", [pytest.param(1, marks=SLOW), 3])
def test_a_token_is_the_draw_of_the_policy_of_its_step(cache, tmp_path, depth):
  """By hand: the decode loop in pieces, each with other parameters, keys and values left as they are."""
  job = train.prepare(config(cache, staleness=depth), tmp_path)
  of_step, rollouts = policies(job, 6), Prefetcher(job.rollout, depth, {})
  prompts = [job.data.stream[n] for n in range(6)]  # a look ahead, which draws nothing
  for step in range(1, 6):
    rollout = rollouts.next(step, of_step[step - 1], None).groups.rollout
    first = max(step - 1 - depth, 0)
    by = of_step[first:step]  # what was taken up since, one for each step
    steps = [PIECE] * (len(by) - 1) + [2**30]
    key = generate.draw_key(job.rollout, step, 0)
    state = job.rollout.engine.start(by[0], prompts[step - 1], key, steps[0])
    lengths = []
    for params, number in zip(by[1:], steps[1:], strict=True):
      lengths.append(np.asarray(state.out.length))
      state = job.rollout.engine.go_on(state, params, number)
    np.testing.assert_array_equal(rollout.tokens, state.out.tokens)
    np.testing.assert_array_equal(rollout.sampler_logp, state.out.sampler_logp)
    at = np.arange(rollout.tokens.shape[-1])
    version = first + sum((at >= length[..., None]).astype(int) for length in lengths)
    sampled = at < rollout.length[..., None]
    np.testing.assert_array_equal(rollout.version, np.where(sampled, version, -1))
  assert {*np.unique(rollout.version)} >= {-1, 4 - depth, 4}


def test_one_policy_all_along_samples_as_if_it_were_whole(cache, tmp_path):
  """Where pieces begin changes no token."""
  job = train.prepare(config(cache), tmp_path)
  (params,) = policies(job, 1)
  whole = job.rollout.engine.whole(params, job.data.stream[0], jax.random.key(3))[0]
  state = job.rollout.engine.start(params, job.data.stream[0], jax.random.key(3), 5)
  for steps in (1, 7, 2**30):
    state = job.rollout.engine.go_on(state, jax.tree.map(jnp.copy, params), steps)
  found = job.rollout.engine.finish(state)[0]
  jax.tree.map(np.testing.assert_array_equal, found._replace(version=None), whole)
  assert found.version.max() == 3 and (np.diff(found.version, axis=-1) >= 0).all()


@SLOW
@pytest.mark.parametrize(("apart", "kv"), [(False, "kept"), (True, "kept"), (True, "recomputed")])
def test_stopped_and_resumed_is_bit_equal_to_unbroken(cache, tmp_path, apart, kv):
  changes = {"staleness": 2, "rollout.in_flight_kv": kv}
  if apart:
    changes |= {"rollout.prompts": 8, "mesh.data": 4, "mesh.rollout_devices": 4}
  at = lambda steps: config(cache, steps=steps, **changes)
  whole = test_staleness.start(at(5), tmp_path / "whole")
  for steps in (2, 3):
    test_staleness.start(at(steps), tmp_path / "cut")
  assert test_apart.numbers(test_staleness.start(at(5), tmp_path / "cut")) == test_apart.numbers(whole)
  ours, theirs = (test_staleness.newest(at(5), tmp_path / name)[0] for name in ("cut", "whole"))
  jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@SLOW
def test_later_draws_are_of_the_newest_policy_alone(cache, tmp_path):
  c = config(cache, steps=3)
  c.reward.accuracy = dict(fn="subprocesses:odd")  # of which half of the groups have both verdicts
  c.dynamic_sampling.update(enabled=True, max_tries=3)
  records = test_staleness.start(c, tmp_path)
  assert [r["step"] for r in records] == [1, 2, 3] and max(r["dynamic_sampling/tries"] for r in records) > 1


@pytest.mark.parametrize(
  ("changes", "sentence"),
  [
    ({"staleness": 0}, "is of what is sampled ahead; set config.staleness above 0"),
    ({"rollout.slots": 0}, "needs config.rollout.slots"),
    ({"rollout.in_flight": 0, "rollout.in_flight_kv": "recomputed"}, "taken up in the middle; set"),
    ({"objective.shape": {}}, "of which none is pi_old; take the log-probs of sampling"),
  ],
)
def test_what_cannot_be_is_refused(cache, changes, sentence):
  with pytest.raises(ValueError, match=sentence):
    c = config(cache)
    if "objective.shape" in changes:
      c.objective.shape = {}
    else:
      c.update_from_flattened_dict(changes)
    check.check(c, 1)


@pytest.mark.parametrize("devices", [1, pytest.param(4, marks=SLOW)])
def test_recomputed_keys_and_values_are_those_of_the_newest_policy(cache, tmp_path, devices):
  """What it samples has the log-probs of a fresh pass by it alone; behind kept ones it has others."""
  c = config(cache, **{"mesh.data": devices, "rollout.slots": 16})
  job = train.prepare(c, tmp_path)
  old, new = policies(job, 2)
  prompts, key = job.data.stream[0], jax.random.key(3)
  how = dict(response_budget=c.rollout.max_tokens, temperature=1.0, chunk=16)
  whole = jax.jit(logprobs.make_logp(job.model, **how))

  def gaps(*anew):
    state = job.rollout.engine.start(old, prompts, key, PIECE)
    rollout = job.rollout.engine.finish(job.rollout.engine.go_on(state, new, ALL, *anew))[0]
    of_each = lambda x: np.repeat(x[:, None], rollout.tokens.shape[1], axis=1)
    tokens, length = np.concatenate([of_each(prompts.tokens), rollout.tokens], -1), of_each(prompts.length)
    gap = np.abs(whole(new, tokens, length)[0] - rollout.sampler_logp)
    by_new = (np.arange(gap.shape[-1]) < rollout.length[..., None]) & (rollout.version == 1)
    behind = by_new & (rollout.version == 0).any(-1, keepdims=True)  # tokens of the old policy
    assert behind.sum() > 100
    return gap[by_new].max(), gap[behind].max()

  assert max(gaps(prompts)) < 1e-4 < 1e-2 < gaps()[1]


def test_the_same_policy_recomputed_samples_as_if_it_were_whole(cache, tmp_path):
  job = train.prepare(config(cache, **{"rollout.in_flight_kv": "recomputed"}), tmp_path)
  (params,), prompts = policies(job, 1), job.data.stream[0]
  whole = job.rollout.engine.whole(params, prompts, jax.random.key(3))[0]
  state = job.rollout.engine.start(params, prompts, jax.random.key(3), 5)
  for steps in (1, 7, ALL):
    state = job.rollout.engine.go_on(state, jax.tree.map(jnp.copy, params), steps, prompts)
  found = job.rollout.engine.finish(state)[0]
  np.testing.assert_array_equal(found.tokens, whole.tokens)
  np.testing.assert_allclose(found.sampler_logp, whole.sampler_logp, atol=1e-5)
