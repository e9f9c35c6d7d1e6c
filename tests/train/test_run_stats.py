"""What a run remembers: the baseline before a step, the KL coefficient after it."""

import jax
import numpy as np
import pytest
from objective_toys import recipe

from grpojax import objective as lib
from grpojax.objective import trackers
from grpojax.train import run_stats


def config(**changes):
  c = recipe("grpo")
  for section, values in changes.items():
    c[section].update(values)
  return c


def seen(reward, kl=0.0):
  return {"reward": reward, "kl": kl, "grad_norm": 1.0, "update/skipped": 0.0, "update/nonfinite": 0.0}


def test_a_step_is_measured_against_the_average_before_it():
  """The stored case has rate 0.05; the first step has nothing before it."""
  c = config(baseline=dict(kind="mean", rate=0.05))
  known, before = run_stats.start(c, 9), []
  for reward in (0.4, 0.8, np.nan, 0.0):
    before.append(run_stats.baseline(c, known, np.arange(2), reward))
    known = run_stats.after(c, known, seen(reward))
  average = 0.95 * 0.4 + 0.05 * 0.8
  np.testing.assert_allclose(before, np.repeat([[0.4], [0.4], [average], [average]], 2, 1), rtol=1e-6)
  np.testing.assert_allclose(known.reward, 0.95 * average, rtol=1e-6)
  assert {x.dtype for x in jax.tree.leaves(known._replace(nonfinite=None))} == {np.dtype(np.float32)}


def test_a_prompts_baseline_is_its_own_success_rate():
  c = config(baseline=dict(kind="prompt"), difficulty=dict(kind="ema"))
  known = run_stats.start(c, 3)
  successes = np.array([0.1, 0.2, 0.3], np.float32)
  tracked = known.difficulty._replace(successes=successes, failures=1 - successes)
  known = known._replace(difficulty=tracked)
  np.testing.assert_allclose(run_stats.baseline(c, known, np.array([2, 0]), 0.9), [0.3, 0.1], rtol=1e-6)


def test_what_is_drawn_follows_the_mixture_and_the_difficulty():
  c, mixture = config(difficulty=dict(kind="ema")), np.array([0.2, 0.8])
  known = run_stats.start(c, 2)
  known = known._replace(difficulty=known.difficulty._replace(successes=np.array([0.5, 1e-9], np.float32)))
  assert run_stats.weights(c, known, None) is None  # by epochs
  np.testing.assert_array_equal(run_stats.weights(c, known, mixture), mixture)
  c.difficulty.weighted = True
  np.testing.assert_allclose(run_stats.weights(c, known, None), [0.55, 0.05], rtol=1e-3)
  np.testing.assert_allclose(run_stats.weights(c, known, mixture), [0.11, 0.04], rtol=1e-3)


@pytest.mark.parametrize(("kl", "factor"), [(0.1, 1), (0.11, 1.0128), (9.0, 1.0256), (0.0, 0.9744)])
def test_the_coefficient_follows_the_error_in_small_steps(kl, factor):
  """1 + clip(kl / target - 1, 0.2) * completions / horizon with 128 completions of 1000."""
  got = trackers.kl_scale(1.0, kl, target=0.1, horizon=1000, completions=128)
  assert got == pytest.approx(factor, rel=1e-6)


def test_the_coefficient_moves_only_where_a_target_is_set():
  c = config()
  still = run_stats.after(c, run_stats.start(c, 1), seen(0.5, kl=9.0))
  c.kl_control.target = 0.1
  moved = run_stats.after(c, run_stats.start(c, 1), seen(0.5, kl=9.0))
  n = c.rollout.prompts * c.rollout.group_size
  assert still.kl_scale == 1 and moved.kl_scale == pytest.approx(1 + 0.2 * n / 10_000)


def test_every_kl_coefficient_is_scaled_and_nothing_else():
  c = recipe("reinforce_pp").objective
  c.penalty = dict(kl=dict(fn="kl_k2", beta=0.5), entropy=dict(fn="entropy_bonus", beta=0.25))
  c.shape = dict(kl=dict(fn="kl_k1", beta=0.125), over=dict(fn="finished_only"))
  objective = lib.build(c)
  scaled = lib.scale_kl(objective, 2.0)
  assert [beta for beta, _ in scaled.penalty] == [0.25, 1.0]
  assert scaled.advantage.keywords["beta"] == pytest.approx(0.02)
  assert [fn.keywords.get("beta") for fn in scaled.shape] == [0.25, None]
  same = jax.tree.structure(scaled) == jax.tree.structure(objective)
  assert same  # or the update would compile again
  assert scaled._replace(advantage=0, penalty=0, shape=0) == objective._replace(
    advantage=0, penalty=0, shape=0
  )


@pytest.mark.parametrize(("name", "has"), [("grpo", True), ("base", False), ("reinforce_pp", True)])
def test_which_objectives_have_a_kl(name, has):
  assert lib.has_kl(lib.build(recipe(name).objective)) is has


def test_return_to_go_without_beta_has_none():
  o = recipe("base").objective
  o.advantage = dict(fn="return_to_go")
  assert not lib.has_kl(lib.build(o))
