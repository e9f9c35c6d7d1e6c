"""Every stored case of a component, a pair, a divergence, a kept set or the proximal policy holds.

Against another program's numbers: see objective_cases_terms.py.  And the baseline of least variance.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from objective_cases import assert_float32, assert_float64
from objective_cases_2026 import CASES, batch_of, objective_of
from objective_cases_terms import ALL, BY_LOGP, DIVERGENCES, FAMILIES, KEPT, problem
from objective_toys import group

from grpojax import objective as lib
from grpojax.objective import advantage, shape, terms, vocabulary
from grpojax.types import Batch


@jax.jit
def run(objective, logp, batch):
  prepared = lib.prepare(objective, batch, logp)
  loss, grad = jax.value_and_grad(lambda x: lib.loss(objective, x, prepared)[0])(logp)
  return loss, grad, prepared.advantage


def solve(case: dict):
  """Loss, gradient by log π and advantages [B, T], as the learner; rows that are in no pair have none."""
  objective, batch, rows = problem(case)
  logp = np.asarray(case["logp"])[rows].reshape(batch.mask.shape)
  loss, *arrays = run(objective, logp, batch)
  found = [np.zeros(np.shape(case["mask"]), np.asarray(x).dtype) for x in arrays]
  for array, x in zip(found, arrays, strict=True):
    array[rows] = np.asarray(x).reshape(len(rows), -1)
  return float(loss), *found


@pytest.mark.parametrize("name", BY_LOGP)
def test_a_case_holds_in_float64(name):
  case = BY_LOGP[name]
  with jax.enable_x64(True):
    loss, grad, advantage = solve(case)
  assert_float64(case, loss, grad)
  adv = case["hyper"]["adv"]
  if adv["kind"] == "opd" and adv["student"] != "current":  # whose advantage is made in the loss
    np.testing.assert_allclose(advantage, case["expected_advantages"], atol=1e-10, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_LOGP)
def test_a_case_holds_in_float32(name):
  case = BY_LOGP[name]
  loss, grad, _ = solve(case)
  assert_float32(case, loss, grad)


PAIRS = [name for name, case in BY_LOGP.items() if "expected_pairs" in (case["extra"] or {})]


@pytest.mark.parametrize("name", PAIRS)
def test_the_pairs_of_a_group_are_its_first_best_over_its_first_worst(name):
  case = BY_LOGP[name]
  _, batch, _ = problem(case)
  best, worst, paired = jax.vmap(terms._pair)(batch.reward, batch.valid & (batch.mask > 0).any(-1))
  first = np.arange(len(best)) * batch.reward.shape[1]
  pairs = np.stack([first + best, first + worst], -1)[np.asarray(paired)]
  assert pairs.tolist() == case["extra"]["expected_pairs"]


@jax.jit
def by_kept(objective, logits, tokens, kept, temperature, batch):
  """Loss and gradient by logits [P, G, T, V] of log-probs over the kept sets."""
  logp_of = lambda z: vocabulary.kept_logprobs(z, tokens, kept, temperature)

  def loss(z):
    logp = logp_of(z)
    return lib.loss(objective, logp, lib.prepare(objective, batch, logp))[0]

  return jax.value_and_grad(loss)(logits)


@pytest.mark.parametrize("name", KEPT)
def test_a_case_of_kept_sets_holds(name):
  case, extra = KEPT[name], KEPT[name]["extra"]
  case = case | dict(advantages=case.get("advantages") or case["expected_advantages"])
  for bits, tolerance in (64, 1e-10), (32, 1e-5):
    with jax.enable_x64(bits == 64):
      batch = batch_of(case)
      fold = lambda x, rows=batch.mask.shape[:2]: np.reshape(x, (*rows, *np.shape(x)[1:]))
      arrays = (fold(extra[key]) for key in ("logits", "tokens", "kept"))
      loss, grad = by_kept(objective_of(case), *arrays, extra["temperature"], batch)
    assert grad.dtype == f"float{bits}"
    np.testing.assert_allclose(loss, case["expected_loss"], atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(grad, fold(extra["expected_grad_logits"]), atol=tolerance, rtol=tolerance)


def divergence(logits, teacher, *, kind, temperature, beta=0.5, k=0):
  if kind.startswith("forward"):
    return vocabulary.forward_kl(logits, teacher, temperature, k)
  if kind == "reverse":
    return vocabulary.reverse_kl(logits, teacher, temperature)
  return vocabulary.jsd(logits, teacher, temperature, beta)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_a_case_of_distillation_over_the_vocabulary_holds(name):
  case, extra = DIVERGENCES[name], DIVERGENCES[name]["extra"]
  on = np.asarray(case["mask"], float)
  on = on if case["valid"] is None else on * np.reshape(case["valid"], (-1, 1))

  def loss(logits):
    found = divergence(logits, jnp.asarray(extra["teacher_logits"]), **case["hyper"]["divergence"])
    return (on * found).sum() / max(on.sum(), 1)

  for bits, tolerance in (64, 1e-10), (32, 1e-5):
    with jax.enable_x64(bits == 64):
      value, grad = jax.jit(jax.value_and_grad(loss))(jnp.asarray(extra["logits"]))
    assert grad.dtype == f"float{bits}"
    np.testing.assert_allclose(value, case["expected_loss"], atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(grad, extra["expected_grad_logits"], atol=tolerance, rtol=tolerance)


def test_the_share_of_a_version():
  table = ALL["loglinear_alpha_table"]["extra"]
  versions, current = np.array(table["inputs"]["versions"]), table["inputs"]["current"]
  lag = np.where(versions < 0, 0, current - versions)  # -1: no token of the policy
  mask = np.ones((1, 1, len(lag)))
  made = Batch(mask, *[np.ones((1, 1))] * 4, sampler_logp=mask, extra=dict(lag=lag[None, None]))
  with jax.enable_x64(True):
    share = shape.log_linear(made).prox_share[0, 0]
  np.testing.assert_allclose(share, table["expected"]["alpha"], rtol=1e-12)


@pytest.mark.parametrize("name", ["optimal_baseline_random", "optimal_baseline_equal_is_mean"])
def test_the_baseline_of_least_variance(name):
  case = next(case for case in CASES if case["name"] == name)["extra"]
  inputs = {key: np.asarray(value) for key, value in case["inputs"].items()}
  column = lambda x: x[:, None]
  made = group(inputs["rewards"], column(np.ones_like(inputs["w"])), grad_norm=inputs["grad_norm"],
               old_logp=column(np.log(inputs["w"])), sampler_logp=column(0 * inputs["w"]))  # fmt: skip
  for bits, tolerance in (64, 1e-10), (32, 1e-5):
    with jax.enable_x64(bits == 64):
      baseline = inputs["rewards"] - np.asarray(jax.jit(advantage.optimal_baseline)(made))
    np.testing.assert_allclose(baseline, case["expected"]["baseline"], atol=tolerance)


def test_every_case_of_these_families_is_held():
  assert len(ALL) == 54 and len(BY_LOGP) + len(KEPT) + len(DIVERGENCES) == 53
  assert {case["variant"] for case in ALL.values()} == set(FAMILIES)
