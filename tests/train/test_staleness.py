"""Rollouts some steps ahead, against the same programs called one after another; late records; profiles."""

import importlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import shared_programs

from grpojax import train
from grpojax.learner import batching, logprobs
from grpojax.rollout import generate
from grpojax.rollout.prefetch import Prefetcher
from grpojax.runtime import checkpointer, metrics
from grpojax.train import checkpoint, setup
from grpojax.train import programs as programs_lib
from grpojax.types import ACTION, PADDING

pytestmark = pytest.mark.usefixtures("quick_jobs")
SLOW = pytest.mark.slow


def tiny(cache, recipe="grpo", **changes):
  config = importlib.import_module(f"grpojax.recipes.{recipe}").get_config("tiny")
  config.update(dict(cache_dir=str(cache), verbose=False, staleness=1, updates_per_rollout=1) | changes)
  config.mesh.data = 1
  config.eval.every = config.checkpoint.every = 100
  config.optimizer.warmup_steps = 0
  config.reward.accuracy = dict(fn=f"{__name__}:short")
  return config


def short(sample):
  return float(sample.length < 30)


def newest(config, workdir):
  """(tree, host) of the newest checkpoint, on the host."""
  job = train.prepare(config, workdir)
  checkpoints = checkpointer.open_checkpoints(workdir, 1)
  tree, host = checkpointer.latest(checkpoints, *checkpoint.tree_layout(job))
  checkpoints.close()
  return jax.tree.map(np.asarray, tree), host


def start(config, workdir):
  train.run(train.prepare(config, workdir))
  return [r for r in metrics.read(workdir) if r["kind"] == "train"]


@pytest.mark.parametrize("depth", [2, pytest.param(1, marks=SLOW), pytest.param(3, marks=SLOW)])
def test_it_is_the_loop_whose_rollouts_are_some_updates_old(cache, tmp_path, monkeypatch, depth):
  """By hand: step s trains on samples of the policy of s - 1 - depth updates, which is also its pi_old."""
  config = tiny(cache, steps=5, staleness=depth)
  fresh = []
  original = programs_lib.build

  def programs(*args):
    built = original(*args)
    return built._replace(fresh=lambda p: fresh.append(jax.tree.map(np.asarray, p)) or built.fresh(p))

  monkeypatch.setattr(programs_lib, "build", programs)
  records = start(config, tmp_path)
  (state, _, _, _, in_flight, _), host = newest(config, tmp_path)

  job = train.prepare(config, tmp_path)
  here = job.programs.fresh(fresh[0])
  policies = [jax.tree.map(jnp.copy, here.params)]
  stream = setup.load_data(config, job.rollout.scorer).stream
  losses = []
  for step in range(1, config.steps + 1):
    old = policies[max(step - 1 - depth, 0)]
    own = generate.synced(job.rollout, {}, old)
    pending = generate.start(job.rollout, own, old, stream.next(), step, 0, step)
    groups = generate.generate_and_score(job.rollout, pending)
    (batch,) = batching.make_batches(job.config, job.mesh, job.pack, groups, None)
    batch = logprobs.add_policy_logprobs(job.programs.logp, old, policies[0], batch)
    before = here
    here, seen = job.programs.update(before, job.objective, batch, {})
    assert all(x.is_deleted() for x in jax.tree.leaves(before))  # donated: nothing is held twice
    policies.append(jax.tree.map(jnp.copy, here.params))
    losses.append((float(seen["loss"]), float(seen["ppo_kl"])))
  jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, here.params), state.params)
  assert len(in_flight) == depth and [one["step"] for one in host["in_flight"]] == [*range(6, 6 + depth)]
  for one, params in zip(host["in_flight"], in_flight, strict=True):
    expected = jax.tree.map(np.asarray, policies[max(one["step"] - 1 - depth, 0)])
    assert one["version"] == max(one["step"] - 1 - depth, 0)
    jax.tree.map(np.testing.assert_array_equal, expected, params)
  assert losses == [(r["loss"], r["ppo_kl"]) for r in records]
  assert losses[0][1] == 0 and all(kl > 0 for _, kl in losses[1:])  # the corrected staleness


def test_groups_older_than_the_bound_are_dropped_counted_and_sampled_again(cache, tmp_path):
  """Also the version of the policy is beside every token."""
  job = train.prepare(tiny(cache, steps=9), tmp_path)
  params = jax.jit(job.model.init)(jax.random.key(0))
  newer = jax.jit(job.model.init)(jax.random.key(1))
  rollouts = Prefetcher(job.rollout, 1, {})
  first = rollouts.next(1, params, None)
  second = rollouts.next(2, newer, None)
  assert first.metrics["staleness/dropped_groups"] == second.metrics["staleness/dropped_groups"] == 0
  assert rollouts.pending[0][0].version == 1
  late = rollouts.next(5, newer, None)  # of step 3, by the policy after step 1: three updates old
  assert late.metrics["staleness/dropped_groups"] == job.config.rollout.prompts
  for collected, version in ((first, 0), (second, 0), (late, 4)):
    rollout = collected.groups.rollout
    sampled = np.arange(rollout.tokens.shape[-1]) < rollout.length[..., None]
    assert (rollout.version[sampled] == version).all() and (rollout.version[~sampled] == -1).all()
    assert (rollout.kind[sampled] == ACTION).all() and (rollout.kind[~sampled] == PADDING).all()


ONE_IN = 3


def right(sample):
  """Right in so many, by chance."""
  return float(sum(map(ord, sample.text)) % ONE_IN == 0)


@pytest.mark.parametrize("depth", [1, pytest.param(2, marks=SLOW)])
def test_as_many_batches_are_sampled_ahead_as_the_step_before_took(cache, tmp_path, monkeypatch, depth):
  """By hand: which prompts, of which policy, with which keys; the first P groups with both verdicts count."""
  c = tiny(cache, steps=99, staleness=depth)
  c.reward.accuracy = dict(fn=f"{__name__}:right")
  c.dynamic_sampling.update(enabled=True, max_tries=4)
  job, P = train.prepare(c, tmp_path), c.rollout.prompts
  of_step = [jax.jit(job.model.init)(jax.random.key(i)) for i in range(8)]
  start, started = generate.start, []
  monkeypatch.setattr(generate, "start", lambda *args: started.append(args) or start(*args))
  sampled = lambda params, prompts, step, draw: generate.generate_and_score(
    job.rollout, start(job.rollout, params, params, prompts, step, draw, 0)
  )
  rollouts, position, ahead, took, unneeded = Prefetcher(job.rollout, depth, {}), 0, {}, 1, 0
  for step in range(1, 8):
    monkeypatch.setattr(sys.modules[__name__], "ONE_IN", 40 if step in (2, 3) else 3)
    found = rollouts.next(step, of_step[step - 1], None)
    for later in range(max([*ahead, 0]) + 1, step + depth + 1):
      ahead[later] = [(position + i, of_step[step - 1]) for i in range(took)]
      position += took
    batches, groups, mixed = ahead[step], [], []
    while (len(mixed) < P and len(groups) < 4 * P) or len(groups) < len(batches) * P:
      draw = len(groups) // P
      n, params = batches[draw] if draw < len(batches) else (position, batches[0][1])
      position += draw >= len(batches)
      drawn = sampled(params, job.data.stream[n], step, draw)
      groups += zip(drawn.prompts.id, drawn.rollout.tokens, strict=True)
      share = drawn.scored.accuracy.mean(1)
      mixed += [draw * P + row for row in np.flatnonzero((share > 0) & (share < 1))]
    for i, number in enumerate(mixed[:P]):
      assert found.groups.prompts.id[i] == groups[number][0]
      np.testing.assert_array_equal(found.groups.rollout.tokens[i], groups[number][1])
    assert found.groups.scored.valid.all(1).sum() == min(len(mixed), P)
    took = 1 + mixed[P - 1] // P if len(mixed) >= P else 4
    unneeded += len(batches) > took
    assert found.metrics["dynamic_sampling/tries"] == took
    assert job.data.stream.position == position == len(started)  # none twice
  assert 0 < unneeded < 7 and rollouts.batches < 4


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "depth"), [("dapo", 2), ("dapo", 1), ("grpo", 2)])
def test_stopped_and_resumed_is_bit_equal_to_unbroken(cache, tmp_path, recipe, depth):
  """Also what is sampled ahead, of prompts that are weighted by what was known then."""

  def config(steps):
    c = tiny(cache, recipe, steps=steps, staleness=depth)
    if recipe == "grpo":
      c.difficulty.update(kind="ema", weighted=True)
    return c

  timed = ("time/", "tokens_per_second/", "memory/", "wall")
  comparable = lambda rs: [{k: v for k, v in r.items() if not k.startswith(timed)} for r in rs]
  whole = start(config(5), tmp_path / "whole")
  start(config(2), tmp_path / "cut")
  resumed = start(config(5), tmp_path / "cut")
  assert [r["step"] for r in resumed] == [1, 2, 3, 4, 5]
  assert comparable(resumed) == comparable(whole)
  ours, theirs = (newest(config(5), tmp_path / name) for name in ("cut", "whole"))
  jax.tree.map(np.testing.assert_array_equal, ours[0], theirs[0])
  for own in ("run", "records"):  # its name, and its clock
    assert ours[1]["stands_on"].pop(own) != theirs[1]["stands_on"].pop(own)
  assert ours[1] == theirs[1]


@pytest.mark.slow
def test_a_profile_is_of_the_steps_asked_for_and_time_is_whole(cache, tmp_path, capsys, monkeypatch):
  """And after the second step nothing is compiled."""
  for key in list(shared_programs.BUILT):  # so that something is compiled before
    monkeypatch.delitem(shared_programs.BUILT, key)
  compiled, before = [], {}
  jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: compiled.append(name))
  make_batches = batching.make_batches

  def noting(*args):
    before[len(before) + 1] = sum("backend_compile" in name for name in compiled)
    return make_batches(*args)

  monkeypatch.setattr(batching, "make_batches", noting)
  records = start(tiny(cache, staleness=0, steps=4, profile_steps=1), tmp_path)
  assert before[1] > 0 and before[3] == before[4]
  (trace,) = tmp_path.glob("profile/plugins/profile/*/*.xplane.pb")
  assert trace.stat().st_size > 0 and f"--logdir={tmp_path}/profile" in capsys.readouterr().out
  for r in records:
    phases = [r[f"time/{name}"] for name in ("rollout", "reward", "logprob", "update", "host")]
    assert sum(phases) == pytest.approx(r["time/step"]) and min(phases) > 0
