"""Every stored case of a newer objective, against another program's numbers (see objective_cases_2026.py)."""

from itertools import product
from pathlib import Path

import jax
import numpy as np
import pytest
from objective_cases import assert_float32, assert_float64
from objective_cases_2026 import LOSSES, OTHERS, batch_of, moment_of, objective_of
from objective_toys import group

from grpojax import objective as lib
from grpojax.objective import advantage


@jax.jit
def run(objective, logp, batch):
  batch = lib.prepare(objective, batch, logp)
  loss, grad = jax.value_and_grad(lambda x: lib.loss(objective, x, batch)[0])(logp)
  return loss, grad, batch.advantage, batch.mask, batch.is_weight


def solve(case: dict):
  """Loss, gradient by log π, advantages, final mask, weight of trust [B, T] or None, as the learner."""
  batch = batch_of(case)
  loss, *arrays = run(objective_of(case), np.reshape(case["logp"], batch.mask.shape), batch)
  flat = lambda x: None if x is None else np.asarray(x).reshape(np.shape(case["mask"]))
  return float(loss), *map(flat, arrays)


@pytest.mark.parametrize("name", LOSSES)
def test_a_case_holds_in_float64(name):
  case = LOSSES[name]
  clip, mismatch = case["hyper"]["clip"], case["hyper"]["mismatch"]
  with jax.enable_x64(True):
    loss, grad, advantage, mask, _ = solve(case)
  valid = np.ones(len(mask)) if case["valid"] is None else case["valid"]
  on = np.asarray(case["mask"]) * np.asarray(valid, float)[:, None]
  if not mismatch.get("renormalize"):  # the stored A is the one before rejection
    np.testing.assert_array_equal(mask, on)
  expected = mask * np.asarray(case["expected_advantages"]) * clip.get("adv_tau", 1.0)
  np.testing.assert_allclose(advantage, expected, atol=1e-10, rtol=1e-10)
  assert_float64(case, loss, grad)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_a_case_holds_in_float32(name):
  case = LOSSES[name]
  loss, grad, *_ = solve(case)
  assert_float32(case, loss, grad)


KEPT = [name for name, case in LOSSES.items() if "kept_rows" in (case["extra"] or {})]


@pytest.mark.parametrize("name", KEPT)
def test_the_rows_that_a_mask_keeps(name):
  case = LOSSES[name]
  with jax.enable_x64(True):
    *_, weight = solve(case)
  rows = np.asarray(case["mask"]).any(1) & (True if case["valid"] is None else np.asarray(case["valid"]))
  np.testing.assert_array_equal(weight.max(1)[rows] > 0, np.asarray(case["extra"]["kept_rows"], bool)[rows])


MOMENTS = [name for name, case in LOSSES.items() if "moment_after" in (case["extra"] or {})]


@pytest.mark.parametrize("name", MOMENTS)
def test_the_moment_that_is_left_for_the_next_step(name):
  case = LOSSES[name]
  _, after = moment_of(case, batch_of(case))
  np.testing.assert_allclose(after, case["extra"]["moment_after"], rtol=1e-12)


@pytest.mark.parametrize("all_wrong", ["zero", "minus_one"])
@pytest.mark.parametrize(
  "name",
  ["maxrl_expected_gradient_p0.3_G4", "maxrl_expected_gradient_p0.05_G8", "maxrl_expected_gradient_p0.9_G3"],
)
def test_maxrl_climbs_a_truncated_likelihood(name, all_wrong):
  """Every outcome of a group with its probability: d log π / dp is 1 / p if right, −1 / (1 − p) if not."""
  inputs, expected = OTHERS[name]["extra"]["inputs"], OTHERS[name]["extra"]["expected"]
  p, G = inputs["p"], inputs["G"]
  outcomes = np.array(list(product([0.0, 1.0], repeat=G)))
  with jax.enable_x64(True):
    one = lambda reward: advantage.maxrl(group(np.zeros(G))._replace(reward=reward), all_wrong=all_wrong)
    advantages = np.asarray(jax.jit(jax.vmap(one))(outcomes))
  slope = np.where(outcomes > 0, 1 / p, -1 / (1 - p))
  probability = np.where(outcomes > 0, p, 1 - p).prod(1)
  got = (probability * (advantages * slope).mean(1)).sum()
  np.testing.assert_allclose(got, expected[all_wrong], rtol=1e-10)


def test_every_case_of_the_slots_is_held():
  """What is stored of other parts is held beside them."""
  tests = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
  assert len(LOSSES) == 85
  assert all(f'"{name}"' in tests for name in OTHERS if name.startswith("maxrl"))
