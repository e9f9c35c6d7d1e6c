"""Rollouts one step ahead, against the same programs called one after another; late records; profiles."""

import importlib
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpojax.learner import batching
from grpojax.rollout import dynamic_sampling, generate
from grpojax.runtime import checkpoint, metrics
from grpojax.train import loop as train
from grpojax.train import setup

pytestmark = pytest.mark.usefixtures("quick_jobs")


def tiny(cache, recipe="grpo", **changes):
  config = importlib.import_module(f"configs.{recipe}").get_config("tiny")
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
  checkpoints = checkpoint.open_checkpoints(workdir, 1)
  tree, host = checkpoint.latest(checkpoints, *train.layout(job))
  checkpoints.close()
  return jax.tree.map(np.asarray, tree), host


def start(config, workdir):
  train.run(train.prepare(config, workdir))
  return [r for r in metrics.read(workdir) if r["kind"] == "train"]


def test_it_is_the_loop_whose_rollouts_are_one_update_old(cache, tmp_path, monkeypatch):
  """By hand: step k trains on samples of the policy of k - 2 updates, which is also its pi_old."""
  config = tiny(cache, steps=4)
  fresh = []
  original = setup.build_programs

  def programs(*args):
    built = original(*args)
    return built._replace(fresh=lambda p: fresh.append(jax.tree.map(np.asarray, p)) or built.fresh(p))

  monkeypatch.setattr(setup, "build_programs", programs)
  records = start(config, tmp_path)
  (state, _, _, behind), _ = newest(config, tmp_path)

  job = train.prepare(config, tmp_path)
  here = job.programs.fresh(fresh[0])
  policies = [jax.tree.map(jnp.copy, here.params)]
  stream = setup.load_data(config, job.scorer.needs).stream
  timer, losses = metrics.Timer(), []
  for step in range(1, config.steps + 1):
    old = policies[max(step - 2, 0)]
    asked = generate.ask(job, timer, old, stream.next(), step, 0)
    groups = dynamic_sampling.Groups(asked.prompts, *generate.grade(job, timer, Counter(), asked))
    (batch,) = batching.deal(config, job.mesh, groups, None)
    batch = batching.with_logps(job.programs.logp, old, policies[0], batch)
    before = here
    here, seen = job.programs.update(before, job.objective, batch, {}, np.float32(np.inf))
    assert all(x.is_deleted() for x in jax.tree.leaves(before))  # donated: nothing is held twice
    policies.append(jax.tree.map(jnp.copy, here.params))
    losses.append((float(seen["loss"]), float(seen["ppo_kl"])))
  jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, here.params), state.params)
  jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, policies[-2]), behind)
  assert losses == [(r["loss"], r["ppo_kl"]) for r in records]
  assert losses[0][1] == 0 and all(kl > 0 for _, kl in losses[1:])  # the corrected staleness


@pytest.mark.parametrize("recipe", ["dapo", pytest.param("grpo", marks=pytest.mark.slow)])
def test_stopped_and_resumed_is_bit_equal_to_unbroken(cache, tmp_path, recipe):
  """Also what was asked ahead, by prompts that are weighted by what was known then."""

  def config(steps):
    c = tiny(cache, recipe, steps=steps)
    if recipe == "grpo":
      c.difficulty.update(kind="ema", weighted=True)
    return c

  timed = ("time/", "tokens_per_second/", "wall")
  comparable = lambda rs: [{k: v for k, v in r.items() if not k.startswith(timed)} for r in rs]  # noqa: E731
  whole = start(config(5), tmp_path / "whole")
  start(config(2), tmp_path / "cut")
  resumed = start(config(5), tmp_path / "cut")
  assert [r["step"] for r in resumed] == [1, 2, 3, 4, 5]
  assert comparable(resumed) == comparable(whole)
  ours, theirs = (newest(config(5), tmp_path / name) for name in ("cut", "whole"))
  jax.tree.map(np.testing.assert_array_equal, ours[0], theirs[0])
  assert ours[1] == theirs[1]


@pytest.mark.slow
def test_a_profile_is_of_the_steps_asked_for_and_time_is_whole(cache, tmp_path, capsys, monkeypatch):
  """And after the second step nothing is compiled."""
  compiled, before = [], {}
  jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: compiled.append(name))
  deal = batching.deal

  def noting(*args):
    before[len(before) + 1] = sum("backend_compile" in name for name in compiled)
    return deal(*args)

  monkeypatch.setattr(batching, "deal", noting)
  records = start(tiny(cache, staleness=0, steps=4, profile_steps=1), tmp_path)
  assert before[1] > 0 and before[3] == before[4]
  (trace,) = tmp_path.glob("profile/plugins/profile/*/*.xplane.pb")
  assert trace.stat().st_size > 0 and f"--logdir={tmp_path}/profile" in capsys.readouterr().out
  for r in records:
    phases = [r[f"time/{name}"] for name in ("rollout", "reward", "logprob", "update", "host")]
    assert sum(phases) == pytest.approx(r["time/step"]) and min(phases) > 0
