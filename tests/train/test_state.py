"""What a run carries from step to step: the baseline before a step, the weights of the next draw."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from objective_toys import recipe

from grpojax import objective as lib
from grpojax.learner.kl_control import kl_scale
from grpojax.rollout import curriculum
from grpojax.train.baseline import average, expected_reward
from grpojax.train.state import RunState


def job(**changes):
  """As much of a job as the functions read."""
  c = recipe("grpo")
  for section, values in changes.items():
    c[section].update(values)
  return SimpleNamespace(config=c)


def state(rows, config, **fields):
  never = np.array(np.nan, np.float32)
  known = curriculum.start(config.difficulty, rows, 2, 2) if config.difficulty.kind else None
  return RunState(0, None, {}, never, known, {})._replace(**fields)


def test_a_step_is_measured_against_the_average_before_it():
  """The stored case has rate 0.05; the first step has nothing before it."""
  made = job(baseline=dict(kind="mean", rate=0.05))
  known, before = state(9, made.config), []
  for reward in (0.4, 0.8, np.nan, 0.0):
    before.append(expected_reward(made, known, np.arange(2), reward))
    known = known._replace(reward_average=average(known.reward_average, reward, 0.05))
  expected = 0.95 * 0.4 + 0.05 * 0.8
  np.testing.assert_allclose(before, np.repeat([[0.4], [0.4], [expected], [expected]], 2, 1), rtol=1e-6)
  np.testing.assert_allclose(known.reward_average, 0.95 * expected, rtol=1e-6)
  assert known.reward_average.dtype == np.float32 and known.reward_average.shape == ()


def test_a_prompts_baseline_is_its_own_success_rate():
  made = job(baseline=dict(kind="prompt"), difficulty=dict(kind="ema"))
  known = state(3, made.config)
  successes = np.array([0.1, 0.2, 0.3], np.float32)
  known = known._replace(curriculum=known.curriculum._replace(successes=successes, failures=1 - successes))
  np.testing.assert_allclose(expected_reward(made, known, np.array([2, 0]), 0.9), [0.3, 0.1], rtol=1e-6)


def test_what_is_drawn_follows_the_mixture_and_the_difficulty():
  c, mixture = job(difficulty=dict(kind="ema")).config, np.array([0.2, 0.8])
  known = state(2, c)
  successes = np.array([0.5, 1e-9], np.float32)
  known = known._replace(curriculum=known.curriculum._replace(successes=successes))
  assert known.draw_weights(c, None) is None  # by epochs
  np.testing.assert_array_equal(known.draw_weights(c, mixture), mixture)
  c.difficulty.weighted = True
  np.testing.assert_allclose(known.draw_weights(c, None), [0.55, 0.05], rtol=1e-3)
  np.testing.assert_allclose(known.draw_weights(c, mixture), [0.11, 0.04], rtol=1e-3)


@pytest.mark.parametrize(("kl", "factor"), [(0.1, 1), (0.11, 1.0128), (9.0, 1.0256), (0.0, 0.9744)])
def test_the_coefficient_follows_the_error_in_small_steps(kl, factor):
  """1 + clip(kl / target - 1, 0.2) * completions / horizon with 128 completions of 1000."""
  got = kl_scale(1.0, kl, target=0.1, horizon=1000, completions=128)
  assert got == pytest.approx(factor, rel=1e-6)


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
