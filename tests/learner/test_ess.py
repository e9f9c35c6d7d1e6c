"""The factor on a step by the effective sample size: stored cases, and what of an update it reaches."""

from functools import partial

import jax
import numpy as np
import optax
import pytest
from objective_cases_2026 import OTHERS
from objective_toys import random_batch, recipe

from grpojax import objective as lib
from grpojax.learner import ess, rows
from grpojax.learner.state import create
from grpojax.learner.update import make_update


@pytest.mark.parametrize(
  "name",
  ["ess_equal_weights", "ess_one_dominates", "ess_sqrt_base.55", "ess_linear", "ess_base_caps_at_1"],
)
def test_a_stored_case_holds(name):
  inputs, expected = OTHERS[name]["extra"]["inputs"], OTHERS[name]["extra"]["expected"]
  with jax.enable_x64(True), np.errstate(divide="ignore"):
    log_weight = np.asarray(inputs["log_w"]) if "log_w" in inputs else np.log(inputs["w"])
    share = jax.jit(ess.share)(log_weight, np.ones(log_weight.shape, bool))
    scale = float(ess.factor(ess.EssConfig(inputs["rule"], inputs["base"]), share))
    share = float(share)
  np.testing.assert_allclose(share, expected["share"], rtol=1e-10)
  np.testing.assert_allclose(share * log_weight.size, expected["ess"], rtol=1e-10)
  np.testing.assert_allclose(scale, expected["lr_scale"], rtol=1e-10)


def test_products_over_long_completions_overflow_nothing_and_no_completion_is_no_share():
  on = np.array([True, True, False])
  share = jax.jit(ess.share)
  np.testing.assert_allclose(share(np.float32([900.0, 900.0, np.nan]), on), 1.0)
  np.testing.assert_allclose(share(np.float32([-900.0, 900.0, np.inf]), on), 0.5)
  assert share(np.zeros(3, np.float32), on & False) == 0


def moved(which: ess.EssConfig):
  """What one update of Adam changes of a table of log-probs; its state, and metrics."""
  batch, theta = random_batch(0)
  to_float32 = lambda x: np.float32(x) if x.dtype == np.float64 else x
  batch, start = jax.tree.map(to_float32, (batch, theta["logp"]))
  numbered = np.arange(batch.mask.size, dtype=np.int32).reshape(batch.mask.shape)
  batch = batch._replace(tokens=numbered, prompt_length=np.zeros(batch.valid.shape, np.int32))
  look_up = lambda table, tokens, *_: (table.ravel()[tokens], 0 * table.ravel()[tokens], None)
  tx, schedule = optax.adam(0.1), optax.constant_schedule(0.1)
  update = jax.jit(make_update(rows.single(look_up, microbatches=2), tx, schedule, ess=which))
  state, metrics = update(create(start, tx), lib.build(recipe("base").objective), batch)
  return np.asarray(state.params) - start, state.opt_state, metrics, (batch, start)


def test_the_factor_is_on_the_step_and_not_on_the_moments():
  whole, its_state, metrics, (batch, start) = moved(ess.EssConfig())
  assert "update/step_factor" not in metrics
  shorter, state, metrics, _ = moved(ess.EssConfig("sqrt", 1.5))
  weight = np.exp(np.where(batch.mask > 0, start - batch.sampler_logp, 0.0).sum(-1, dtype=np.float64))
  weight = weight[batch.valid & (batch.mask.sum(-1) > 0)]
  share = weight.sum() ** 2 / (weight.size * (weight**2).sum())
  np.testing.assert_allclose(metrics["update/ess_share"], share, rtol=1e-5)
  np.testing.assert_allclose(metrics["update/step_factor"], np.sqrt(share / 1.5), rtol=1e-5)
  assert 0.1 < metrics["update/step_factor"] < 0.95
  np.testing.assert_allclose(shorter, metrics["update/step_factor"] * whole, atol=1e-6)
  jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), state, its_state)
