"""Every stored case, against numbers that another program computed (see objective_cases.py)."""

import jax
import numpy as np
import pytest
from objective_cases import LOSSES, batch_of, logp_of, objective_of

from grpojax import objective as lib


def solve(case: dict):
  """Loss, gradient by log π, advantages and final mask [B, T], as the learner gets them."""
  objective, batch, logp = objective_of(case), batch_of(case), logp_of(case)

  def run(objective, logp, batch):
    batch = lib.prepare(objective, batch)
    loss, grad = jax.value_and_grad(lambda x: lib.loss(objective, x, batch)[0])(logp)
    return loss, grad, batch.advantage, batch.mask

  loss, *arrays = jax.jit(run)(objective, logp, batch)
  return float(loss), *(np.asarray(x).reshape(np.shape(case["mask"])) for x in arrays)


@pytest.mark.parametrize("name", LOSSES)
def test_a_case_holds_in_float64(name):
  case = LOSSES[name]
  with jax.enable_x64(True):
    loss, grad, advantage, mask = solve(case)
  if not case["hyper"]["mismatch"].get("renormalize"):  # the stored A is the one before rejection
    np.testing.assert_array_equal(mask, case["mask"])
  expected = mask * np.asarray(case["expected_advantages"])
  np.testing.assert_allclose(advantage, expected, atol=1e-10, rtol=1e-10)
  np.testing.assert_allclose(loss, case["expected_loss"], atol=1e-10, rtol=1e-10)
  np.testing.assert_allclose(grad, case["expected_grad_logp"], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", LOSSES)
def test_a_case_holds_in_float32(name):
  """1e-5 relative to the largest gradient: losses are differences, and may cancel to 0."""
  case = LOSSES[name]
  loss, grad, *_ = solve(case)
  assert grad.dtype == np.float32
  scale = np.abs(case["expected_grad_logp"]).max()
  np.testing.assert_allclose(grad, case["expected_grad_logp"], atol=1e-5 * scale + 1e-9)
  np.testing.assert_allclose(loss, case["expected_loss"], rtol=1e-5, atol=1e-5 * scale)
