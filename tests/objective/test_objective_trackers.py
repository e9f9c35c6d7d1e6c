"""What a run remembers between steps (the stored cases are in test_objective_cases.py)."""

import jax.numpy as jnp
import numpy as np

from grpojax.objective import trackers


def test_ema_follows_every_leaf_and_stands_still_at_rate_zero():
  old, new = dict(a=jnp.zeros(2), b=jnp.ones(1)), dict(a=jnp.ones(2), b=jnp.zeros(1))
  got = trackers.ema(old, new, rate=0.25)
  np.testing.assert_allclose(got["a"], 0.25)
  np.testing.assert_allclose(got["b"], 0.75)
  np.testing.assert_array_equal(trackers.ema(old, new, rate=0.0)["b"], old["b"])


def test_a_beta_tracker_forgets_with_the_distance_of_the_policies():
  got = trackers.beta_keep(jnp.array([0.0, 0.006, 9.0]))
  np.testing.assert_allclose(got, [0.96, 2**-0.1, 0.875], rtol=1e-6)


def test_a_beta_tracker_converges_to_the_rate_of_success():
  a, b = 4.0, 4.0
  for step in range(2000):
    a, b = trackers.beta_update(a, b, float(step % 4 == 0), keep=0.999)
  np.testing.assert_allclose(trackers.beta_mean(a, b), 0.25, atol=0.01)


def test_hopeless_and_solved_prompts_are_still_drawn():
  got = trackers.prompt_weight(jnp.array([0.0, 0.5, 1.0]))
  np.testing.assert_allclose(got, [0.05, 0.55, 0.05], rtol=1e-6)
