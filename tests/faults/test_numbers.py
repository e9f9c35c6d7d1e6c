"""Losses and gradients that are not finite, spikes, and a sampler that has other weights than the learner."""

import importlib
from itertools import pairwise

import jax
import numpy as np
import pytest
import subprocesses

from grpojax import train
from grpojax.config import check_keys
from grpojax.recipes import base
from grpojax.runtime import metrics
from grpojax.train import guard

pytestmark = pytest.mark.usefixtures("quick_jobs")


def config(cache, recipe="grpo", **changes):
  """The programs of test_staleness.py."""
  c = importlib.import_module(f"grpojax.recipes.{recipe}").get_config("tiny")
  c.update(steps=4, verbose=False, cache_dir=str(cache), updates_per_rollout=1)
  c.mesh.data = 1
  c.optimizer.warmup_steps = 0
  c.eval.every = c.checkpoint.every = 100
  c.guard.update(changes)
  c.reward.accuracy = dict(fn=f"{__name__}:short")
  return c


def short(sample):
  return float(sample.length < 30)


def run(config, workdir, spoil=None):
  """Returns the training records and the state before each update; spoil(number, batch) -> batch."""
  job = train.prepare(config, workdir)
  seen = []

  def update(state, objective, batch, *rest):
    seen.append(jax.tree.map(np.asarray, state._replace(stats=None)))  # which count what was skipped
    batch = spoil(len(seen), batch) if spoil else batch
    return job.programs.update(state, objective, batch, *rest)

  try:
    train.run(job._replace(programs=job.programs._replace(update=update)))
  finally:
    records = [r for r in metrics.read(workdir) if r["kind"] == "train"]
  return records, seen


def same(a, b):
  return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def at(steps, change):
  return lambda number, batch: change(batch) if number in steps else batch


def spoilt(batch):
  return batch._replace(reward=batch.reward.at[0, 0].set(np.inf))


def test_an_update_that_is_not_finite_is_skipped_counted_and_kept(cache, tmp_path, capsys):
  records, states = run(config(cache), tmp_path, at({2}, spoilt))
  assert [r["update/skipped"] for r in records] == [0, 1, 0, 0]
  assert [r["update/nonfinite"] for r in records] == [0, 1, 0, 0]
  moved = [not same(*pair) for pair in pairwise(states)]
  assert moved == [True, False, True]  # parameters, moments and the schedule's count
  assert "step 2: a loss was not finite; the update was skipped\n" in capsys.readouterr().out
  (kept,) = (tmp_path / "bad_batches").iterdir()
  with np.load(kept, allow_pickle=False) as arrays:
    assert kept.name == "step_000002_process_0.npz"
    assert arrays["tokens"].shape[:2] == arrays["reward"].shape == arrays["length"].shape
    assert arrays["prompt_tokens"].shape[0] == arrays["prompt_id"].shape[0]


@pytest.mark.slow
def test_so_many_in_a_row_stop_the_run_also_across_a_restart(cache, tmp_path):
  c = config(cache, nonfinite=2)
  c.checkpoint.every = 1
  c.steps = 2
  records, _ = run(c, tmp_path, at({2}, spoilt))
  assert len(records) == 2
  c.steps = 9
  with pytest.raises(FloatingPointError, match="in 2 steps in a row, up to step 3"):
    run(c, tmp_path, at({1}, spoilt))  # the first after the restart
  assert len(list((tmp_path / "bad_batches").iterdir())) == 2


@pytest.mark.slow
def test_a_spike_is_skipped_if_asked_for_and_does_not_move_the_average(cache, tmp_path, capsys):
  """Dr. GRPO's advantages grow with the rewards."""
  larger = lambda batch: batch._replace(reward=batch.reward * 1000)
  records, states = run(config(cache, "dr_grpo", spike=5.0), tmp_path / "a", at({3}, larger))
  assert [r["update/skipped"] for r in records] == [0, 0, 1, 0] and not records[2]["update/nonfinite"]
  assert same(states[2], states[3]) and "is a spike; the update was skipped" in capsys.readouterr().out
  assert records[2]["grad_norm"] > 5 * records[1]["grad_norm"]
  records, _ = run(config(cache, "dr_grpo"), tmp_path / "b", at({3}, larger))
  assert not any(r["update/skipped"] for r in records)  # off unless asked for


@pytest.mark.slow
def test_a_sampler_with_other_weights_is_said_and_then_stops_the_run(cache, tmp_path, capsys):
  """The sampler keeps the first step's weights, as it has in codes that peers shipped; the policy moves."""
  c = config(cache, warn_mismatch=1e-3, stop_mismatch=0.2)
  c.optimizer.learning_rate = 1e-3
  c.steps = 40
  job = train.prepare(c, tmp_path)
  sample, first = job.programs.sample, []

  def start(params, *rest, **how):
    first.append(jax.tree.map(np.asarray, params))
    return sample.start(first[0], *rest, **how)

  rollout = job.rollout._replace(engine=sample._replace(start=start))
  with pytest.raises(ArithmeticError, match="stop_mismatch; the sampler has other weights"):
    train.run(job._replace(rollout=rollout))
  assert "config.guard.warn_mismatch" in capsys.readouterr().out
  apart = [r[guard.MISMATCH] for r in metrics.read(tmp_path) if r["kind"] == "train"]
  assert apart[0] < 1e-5 and apart[-1] > 0.2 and len(apart) < 40


@pytest.mark.parametrize("share", [0.4, 0.8])
def test_a_reward_that_fails_too_often_stops_the_run(cache, tmp_path, share):
  """Of what a failure is, `tests/test_rewards.py` has every kind."""
  c = config(cache)
  c.steps = 1
  c.reward.accuracy = dict(fn=f"{__name__}:fails", share=share)
  if share < c.guard.failed_rewards:
    records, _ = run(c, tmp_path)
    assert records[0]["rewards/accuracy/failed"] == records[0]["rows/invalid"] > 0
    return
  with pytest.raises(ArithmeticError, match=r"accuracy/failed = \d+ of \d+ completions, a larger share"):
    run(c, tmp_path)


def fails(samples, *, share):
  """On every so many of the completions."""
  bad = int(share * len(samples))
  return [ValueError("broken")] * bad + [float(sample.length < 30) for sample in samples[bad:]]


@pytest.mark.slow
def test_the_command_says_it_in_one_sentence(cache, tmp_path):
  flags = ["--config=configs/dr_grpo.py:tiny", f"--config.cache_dir={cache}", f"--workdir={tmp_path}"]
  flags += ["--config.guard.stop_mismatch=1e-12", "--config.mesh.data=1"]
  done = subprocesses.run_one("grpojax.main", *flags)
  assert done.code == 1 and "Traceback" not in done.err
  assert done.err.splitlines()[-1].startswith("error: step 1: log-probs of sampler and learner are ")


def test_an_update_that_only_the_optimiser_spoils_is_skipped_and_said(cache, tmp_path, capsys, monkeypatch):
  """b1 = 1 divides 0 by 0; the schema refuses it, and any other way there is stopped here."""
  c = config(cache, nonfinite=1)
  c.steps = 1
  c.optimizer.b1 = 1.0
  monkeypatch.setattr(check_keys, "check", lambda c: None)
  with pytest.raises(FloatingPointError, match="what the optimiser made of a finite gradient was not finite"):
    run(c, tmp_path)
  assert not (tmp_path / "checkpoints" / "1").exists()
  assert "step 1: what the optimiser made of a finite gradient was not finite" in capsys.readouterr().out


def test_log_probs_that_are_not_finite_are_no_other_weights():
  c = base.get_config("tiny")
  metrics = {"update/nonfinite": 0.0, "update/skipped": 0.0, "rewards/graded": 4.0, guard.MISMATCH: np.nan}
  with pytest.raises(FloatingPointError, match=r"are not finite .* config\.optimizer\.learning_rate"):
    guard.check(c, 1, 0, metrics)


@pytest.mark.parametrize("key", ["b1", "b2", "momentum"])
def test_moments_that_would_never_move_are_refused(key):
  c = base.get_config("tiny")
  c.optimizer[key] = 1.0
  with pytest.raises(ValueError, match=rf"config.optimizer.{key} = 1.0 must lie in 0 to 0.999999"):
    check_keys.check(c)
