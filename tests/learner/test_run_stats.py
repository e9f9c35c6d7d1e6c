"""The updates' running statistics, beside host code in numpy that sees a whole step at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grpojax.learner import state
from grpojax.learner.state import StatsConfig

STEPS = 40


class Host:
  """Averages of a step's updates, taken after its last, in float64."""

  def __init__(self, config):
    self.c, self.scale, self.norm, self.nonfinite = config, 1.0, np.nan, 0

  def limit(self):
    return np.inf if np.isnan(self.norm) or not self.c.spike else self.c.spike * self.norm

  def after_step(self, updates):
    c, mean = self.c, {name: np.mean([u[name] for u in updates]) for name in updates[0]}
    norms = [u["grad_norm"] for u in updates if u["grad_norm"] != 0]
    if norms and not mean["update/skipped"]:
      new = np.mean(norms)
      self.norm = new if np.isnan(self.norm) else (1 - c.rate) * self.norm + c.rate * new
    self.nonfinite = self.nonfinite + 1 if mean["update/nonfinite"] else 0
    if c.target > 0 and not np.isnan(mean["kl"]):
      error = np.clip(mean["kl"] / c.target - 1, -0.2, 0.2)
      self.scale *= 1 + error * c.completions / c.horizon


def random_update(rng, limit):
  """Metrics of an update: now and then a norm that is a spike, or a loss that is not finite."""
  norm = np.float32(rng.lognormal(0, 0.3) * rng.choice([1, 1, 1, 5]))
  norm = np.float32(rng.choice([norm] * 4 + [np.nan, np.inf, 0, 0]))
  kl = np.float32(rng.exponential(0.1))
  finite = bool(np.isfinite(norm)) and rng.random() < 0.9
  taken = finite and norm <= limit
  kl = kl if finite or rng.random() < 0.5 else np.float32(np.nan)
  return {"grad_norm": norm, "kl": kl, "update/nonfinite": np.float32(not finite),
          "update/skipped": np.float32(not taken)}  # fmt: skip


@pytest.mark.parametrize("updates", [1, 2, 3])
@pytest.mark.parametrize(("spike", "target"), [(0.0, 0.0), (2.0, 0.1)])
def test_statistics_are_those_of_code_that_sees_a_whole_step(updates, spike, target):
  config = StatsConfig(updates, completions=64, target=target, horizon=1000.0, spike=spike, rate=0.2)
  step = jax.jit(lambda stats, metrics: state.after_update(config, stats, metrics))
  seen = dict(skipped=0, nonfinite=0)
  for seed in range(3):
    rng, host, stats = np.random.default_rng(seed), Host(config), state.start()
    for _ in range(STEPS):
      found = []
      for _ in range(updates):
        np.testing.assert_allclose(state.limit(config, stats), host.limit(), rtol=2e-5)
        found.append(random_update(rng, host.limit()))
        stats = step(stats, found[-1])
      host.after_step(found)
      got, expected = (stats.kl_scale, stats.grad_norm), (host.scale, host.norm)
      np.testing.assert_allclose(got, expected, rtol=2e-5)
      assert int(stats.nonfinite) == host.nonfinite
      seen["skipped"] += not np.isnan(host.norm) and any(u["update/skipped"] for u in found)
      seen["nonfinite"] = max(seen["nonfinite"], host.nonfinite)
    assert np.isfinite(host.norm) and np.isfinite(host.scale)
    assert target == 0 or host.scale != 1
  assert seen["skipped"] > 10 and seen["nonfinite"] > 1


@pytest.mark.parametrize("before", [0, 200])
def test_steps_without_contrast_make_no_spike_of_the_next_gradient(before):
  config = StatsConfig(spike=5.0)
  taken = {"update/nonfinite": jnp.float32(0), "update/skipped": jnp.float32(0)}
  step = jax.jit(lambda stats, norm: state.after_update(config, stats, taken | {"grad_norm": norm}))
  stats = state.start()
  if before:
    stats = step(stats, jnp.float32(1))
  for _ in range(before or 2):
    stats = step(stats, jnp.float32(0))
  assert state.limit(config, stats) == (5 if before else np.inf)


def test_within_a_step_no_average_moves():
  """Each of a step's updates is measured by what was known before the step."""
  config = StatsConfig(updates=2, spike=3.0, target=0.1)
  metrics = {"grad_norm": jnp.float32(2), "kl": jnp.float32(1)}
  metrics |= {"update/nonfinite": jnp.float32(0), "update/skipped": jnp.float32(0)}
  stats = state.after_update(config, state.start(), metrics)
  assert np.isnan(stats.grad_norm) and stats.kl_scale == 1 and np.isinf(state.limit(config, stats))
  stats = state.after_update(config, stats, metrics | {"grad_norm": jnp.float32(4)})
  assert stats.grad_norm == 3 and stats.kl_scale > 1 and state.limit(config, stats) == 9
  assert all(x == 0 for x in stats.sums.values())


def test_statistics_keep_their_types_and_shapes_so_that_one_program_serves_all_steps():
  metrics = {name: jnp.float32(1) for name in ("grad_norm", "update/skipped", "update/nonfinite")}
  for config in (StatsConfig(), StatsConfig(updates=2, target=0.1)):
    after = jax.eval_shape(lambda s, c=config: state.after_update(c, s, metrics), state.start())
    assert after == jax.eval_shape(state.start)
