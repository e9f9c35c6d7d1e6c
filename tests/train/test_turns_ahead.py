"""Trajectories of the coming steps are played while the host trains: the same as one after the other."""

import time
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_staleness import newest
from test_train import comparable, start
from test_turns_train import parity, playing
from turn_toys import Scripted

from grpojax import train
from grpojax.learner import batching, logprobs
from grpojax.rollout import generate
from grpojax.rollout.prefetch import Prefetcher
from grpojax.rollout.sampler.engine import ALL
from grpojax.train import programs as programs_lib

pytestmark = pytest.mark.usefixtures("quick_jobs")
SLOW = pytest.mark.slow


@pytest.fixture(autouse=True)
def scripted(monkeypatch):
  monkeypatch.setattr(programs_lib, "Pool", lambda *args, **knobs: Scripted(parity, delay=1))


def config(cache, **changes):
  c = playing(cache)
  flat = {"staleness": 1, "updates_per_rollout": 1, "eval.every": 100, "optimizer.warmup_steps": 0}
  c.update_from_flattened_dict(flat | changes)
  return c


def train_records(found):
  timed = ("environment/seconds", "environment/idle_seconds")
  kept = [r for r in comparable(found) if r["kind"] == "train"]
  return [{key: value for key, value in record.items() if key not in timed} for record in kept]


@SLOW
@pytest.mark.parametrize("depth", [1, 2])
def test_it_is_the_loop_whose_trajectories_are_some_updates_old(cache, tmp_path, monkeypatch, depth):
  """By hand, one game after the other."""
  fresh, original = [], programs_lib.build

  def programs(*args):
    built = original(*args)
    return built._replace(fresh=lambda p: fresh.append(jax.tree.map(np.asarray, p)) or built.fresh(p))

  monkeypatch.setattr(programs_lib, "build", programs)
  records = train_records(start(config(cache, steps=4, staleness=depth), tmp_path / "run"))
  job = train.prepare(config(cache, steps=4, staleness=0), tmp_path / "by_hand")
  here = job.programs.fresh(fresh[0])
  policies, losses = [jax.tree.map(jnp.copy, here.params)], []
  for step in range(1, 5):
    old = policies[max(step - 1 - depth, 0)]
    pending = generate.start(job.rollout, old, old, job.data.stream.next(), step, 0, step)
    groups = generate.generate_and_score(job.rollout, pending)
    (batch,) = batching.make_batches(job.config, job.mesh, job.pack, groups, None)
    batch = logprobs.add_policy_logprobs(job.programs.logp, old, policies[0], batch)
    here, seen = job.programs.update(here, job.objective, batch, {})
    policies.append(jax.tree.map(jnp.copy, here.params))
    losses.append((float(seen["loss"]), float(seen["ppo_kl"])))
  assert losses == [(r["loss"], r["ppo_kl"]) for r in records]
  assert losses[0][1] == 0 and losses[-1][1] > 0  # the policy that acted is an older one
  assert {r["staleness/dropped_groups"] for r in records} == {0}


@SLOW
@pytest.mark.parametrize("changes", [{}, {"dynamic_sampling.enabled": True, "staleness": 2}], ids=str)
def test_stopped_and_resumed_is_bit_equal_to_unbroken(cache, tmp_path, changes):
  at = lambda steps: config(cache, steps=steps, **changes)
  whole = train_records(start(at(4), tmp_path / "whole"))
  for steps in (1, 2):
    start(at(steps), tmp_path / "cut")
  assert train_records(start(at(4), tmp_path / "cut")) == whole
  ours, theirs = (newest(at(4), tmp_path / name)[0] for name in ("cut", "whole"))
  jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@SLOW
def test_four_devices_that_do_both_have_the_numbers_of_one(cache, tmp_path):
  """Two threads send programs that gather and sum over the devices."""

  def records(data, fsdp):
    meshed = {"mesh.data": data, "mesh.fsdp": fsdp, "rollout.slots": 16}
    return train_records(start(config(cache, steps=3, **meshed), tmp_path / f"{data * fsdp}"))

  for one, four in zip(records(1, 1), records(2, 2), strict=True):
    assert one["num_tokens"] == four["num_tokens"] and one["reward"] == four["reward"]
    assert one["loss"] == pytest.approx(four["loss"], abs=1e-6)


def job_with(environments, cache, tmp_path, monkeypatch, timeout):
  """A job, and parameters of random weights; jobs of another `timeout` share no environments with it."""
  monkeypatch.setattr(programs_lib, "Pool", lambda *args, **knobs: environments)
  job = train.prepare(config(cache, **{"env.timeout": timeout}), tmp_path)
  return job, jax.jit(job.model.init)(jax.random.key(0))


def test_environments_are_stepped_while_the_host_is_elsewhere(cache, tmp_path, monkeypatch):
  environments = Scripted(parity, delay=1)
  job, params = job_with(environments, cache, tmp_path, monkeypatch, timeout=50.0)
  playing = job.rollout.engine.start(params, job.data.stream.next(), jax.random.key(1), ALL)
  deadline = time.monotonic() + 120
  while not playing.groups.done() and time.monotonic() < deadline:
    time.sleep(0.05)
  assert len(environments.log) == 16 * 4  # of 16 trajectories: a reset and three actions
  counters = Counter()
  numbers, _ = zip(*job.rollout.engine.stream(playing, counters), strict=True)
  assert sorted(np.concatenate(numbers)) == [0, 1, 2, 3] and counters["environment/steps"] == 16 * 4


def test_a_game_that_nobody_wants_any_more_ends_though_its_environments_never_answer(
  cache, tmp_path, monkeypatch
):
  class Silent(Scripted):
    def wait(self, timeout):
      time.sleep(0.01)
      return []

  silent = Silent(parity, delay=10**9)
  job, params = job_with(silent, cache, tmp_path, monkeypatch, timeout=40.0)
  rollouts = Prefetcher(job.rollout, 1, {})
  prompts = [job.data.stream.next() for _ in range(2)]
  rollouts.pending.extend([generate.start(job.rollout, params, params, one, 1, 0, 0)] for one in prompts)
  time.sleep(0.5)
  games = [one.decode_state.groups for (one,) in rollouts.pending]
  assert not any(game.done() for game in games)
  rollouts.close()
  assert [game.result(timeout=60) for game in games] == [[], []]
