"""Every stored case, against numbers that another program computed (see objective_cases.py)."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from objective_cases import LOSSES, OTHERS, assert_float32, assert_float64, batch_of, logp_of, objective_of
from objective_toys import batch, group

from grpojax import objective as lib
from grpojax.objective import advantage, correct, penalty, rescale, select, shape, stats
from grpojax.rollout import curriculum


@jax.jit
def run(objective, logp, batch):
  batch = lib.prepare(objective, batch)
  loss, grad = jax.value_and_grad(lambda x: lib.loss(objective, x, batch)[0])(logp)
  return loss, grad, batch.advantage, batch.mask


def solve(case: dict):
  """Loss, gradient by log π, advantages and final mask [B, T], as the learner gets them."""
  loss, *arrays = run(objective_of(case), logp_of(case), batch_of(case))
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
  assert_float64(case, loss, grad)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_a_case_holds_in_float32(name):
  case = LOSSES[name]
  loss, grad, *_ = solve(case)
  assert_float32(case, loss, grad)


def read(name: str):
  """Inputs and expectations of a case without a loss."""
  return OTHERS[name]["extra"]["inputs"], OTHERS[name]["extra"]["expected"]


def test_dynamic_sampling_filters_on_accuracy_and_not_on_the_shaped_reward():
  inputs, expected = read("dynamic_sampling_filter")
  made = batch(inputs["shaped_rewards"], accuracy=np.float32(inputs["acc"]))
  np.testing.assert_array_equal(select.mixed_groups(made)[:, 0, 0], expected["keep"])


def test_process_supervision_is_deepseekmaths():
  inputs, expected = read("process_supervision_grpo")
  pad = lambda rows, filler: [row + [filler] * (3 - len(row)) for row in rows]
  mask = [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
  made = group([0, 0], mask, step_score=pad(inputs["step_rewards"], 9.0),
               step_end=pad(inputs["step_end_index"], -1))  # fmt: skip
  got = jax.jit(advantage.process_supervision)(made)
  for row, wanted in zip(got, expected["token_advantage"], strict=True):
    np.testing.assert_allclose(row[: len(wanted)], wanted, rtol=1e-5)


def test_a_constant_group_is_exactly_zero_in_float32():
  inputs, expected = read("zero_variance_float32")
  rewards = np.float32(inputs["rewards"])
  naive = jax.jit(lambda x: (x - x.mean()) / (x.std(ddof=1) + 1e-6))(rewards)
  assert abs(float(naive[0])) > 0.5  # what the case is about
  np.testing.assert_array_equal(jax.jit(advantage.zscore)(group(rewards)), expected["advantages"])


def test_adaptive_groups_are_measured_by_their_pool():
  inputs, expected = read("reinforce_ada_pool_stats")
  pool = np.ravel(inputs["round_rewards"][: expected["stop_after_round"]])
  stats = dict(pool_mean=[pool.mean()] * 4, pool_std=[pool.std(ddof=1)] * 4)
  wanted = [expected["A_pos"]] * 2 + [expected["A_neg"]] * 2
  np.testing.assert_allclose(jax.jit(advantage.pooled)(group([1, 1, 0, 0], **stats)), wanted, rtol=1e-5)


def test_the_tracker_of_spo_and_its_batch():
  inputs, expected = read("spo_beta_tracker")
  a, b, reward = inputs["alpha"], inputs["beta"], inputs["reward"]
  made = group([reward], baseline=[curriculum.beta_mean(a, b)])
  np.testing.assert_allclose(advantage.mixed_baseline(made), [expected["advantage_raw"]])
  a, b = curriculum.beta_update(a, b, reward, keep=OTHERS["spo_beta_tracker"]["hyper"]["rho"])
  np.testing.assert_allclose((a, b), (expected["alpha_after"], expected["beta_after"]))
  np.testing.assert_allclose(curriculum.beta_mean(a, b), expected["value_after"])

  inputs, expected = read("spo_batch_normalised")
  column = lambda x: np.float32(x)[:, None]
  made = batch(column(inputs["rewards"]), baseline=column(inputs["tracker_means"]))
  normalised = lambda made: rescale.batch_zscore(jax.vmap(advantage.mixed_baseline)(made), made)
  got = jax.jit(normalised)(made)[:, 0]
  np.testing.assert_allclose(got, expected["advantages"], rtol=1e-5)


def test_a_reference_follows_by_its_rate():
  inputs, expected = read("ema_reference")
  got = stats.ema(jnp.array(inputs["ref"]), jnp.array(inputs["theta"]), rate=0.6)
  np.testing.assert_allclose(got, expected["ref_after"], rtol=1e-6)


def test_the_table_of_mismatch_weights_has_inclusive_bounds():
  """One token per completion, so that Π ρ = ρ."""
  inputs, expected = read("mismatch_weight_table")
  with jax.enable_x64(True):
    rho = np.log(np.asarray(inputs["rho"]))[None, :, None]
    made = batch(np.zeros((1, 7)), np.ones((1, 7, 1)), old_logp=rho, sampler_logp=0 * rho)
    for got, key in [
      (correct.truncated_is(made, high=2.0), "tis"),
      (correct.icepop(made, low=0.5 - 1e-12, high=5.0 + 1e-12), "icepop"),
      (correct.masked_is(made, high=2.0 + 1e-12), "mis_single_token"),
      (correct.worst_token(made, low=0.5 - 1e-12), "wtrs_keep_single_token"),
    ]:
      np.testing.assert_allclose(got[0, :, 0], expected[key], rtol=1e-12)
  exact = batch([[0]], [[[1]]], old_logp=[[[0.0]]], sampler_logp=[[[0.0]]])  # ρ = 1 exactly
  for fn in (correct.icepop, correct.geometric_rejection, correct.worst_token, correct.masked_is):
    np.testing.assert_array_equal(fn(exact, low=1.0, high=1.0), 1)


@pytest.mark.parametrize(
  "fn, name",
  [
    (penalty.kl_k1, "k1"),
    (penalty.kl_k2, "k2"),
    (penalty.kl_k3, "k3"),
    (penalty.kl_k3_plus, "k3+"),
    (penalty.kl_k1_corrected, "ratio*k1 (ratio grad on)"),
    (penalty.kl_k3_corrected, "ratio*k3 (ratio grad on)"),
  ],
)
def test_what_a_penalty_pulls_at_is_what_is_written_of_it(fn, name):
  """Every action with its probability: the expected gradient, not a sample's."""
  inputs, expected = read("kl_expected_gradients_categorical")
  with jax.enable_x64(True):
    logits, reference = np.array(inputs["theta_logits"]), np.array(inputs["ref_logits"])
    old_logp, ref_logp = (jax.nn.log_softmax(x)[None, :, None] for x in (logits, reference))

    def cost(x):
      logp = jax.nn.log_softmax(x)[None, :, None]
      made = batch(np.zeros((1, 3)), np.ones((1, 3, 1)), old_logp=old_logp, ref_logp=ref_logp)
      return (jax.nn.softmax(logits) * fn(logp, made, None)[0, :, 0]).sum()

    wanted = expected["expected_grad_of_estimator"][name]
    np.testing.assert_allclose(jax.jit(jax.grad(cost))(logits), wanted, atol=1e-12)


def test_kl_in_the_reward_pulls_at_the_kl():
  """k1 in the reward of a sample, then REINFORCE: Σ π (−A) ∇ log π is ∇ KL(π_θ‖π_ref)."""
  inputs, expected = read("kl_expected_gradients_categorical")
  with jax.enable_x64(True):
    logits = np.array(inputs["theta_logits"])
    logp, ref = (
      jax.nn.log_softmax(np.array(inputs[key]))[None, :, None]
      for key in ("theta_logits", "ref_logits")
    )
    made = batch(np.zeros((1, 3)), np.ones((1, 3, 1)), old_logp=logp, ref_logp=ref)
    reward = shape.kl_k1(made, beta=1.0).reward[0]
    value = lambda x: -(jax.nn.softmax(logits) * reward * jax.nn.log_softmax(x)).sum()
    wanted = expected["expected_grad_of_estimator"]["k1 in reward (sg(k1)*logp)"]
    np.testing.assert_allclose(jax.jit(jax.grad(value))(logits), wanted, atol=1e-7)


@jax.jit
def halves(objective, logp, batch):
  """Loss of a prepared batch, one prompt after the other."""
  whole = logp, lib.prepare(objective, batch)
  return sum(lib.loss(objective, *jax.tree.map(lambda x, p=p: x[p : p + 1], whole))[0] for p in (0, 1))


@pytest.mark.parametrize("name", ["token-mean", "seq-mean-token-mean", "constant"])
def test_two_microbatches_have_the_batchs_denominator(name):
  """The mean of two local means is another number, which the case also states."""
  _, expected = read("microbatch_denominators_toyB")
  case = LOSSES["dapo_toyB"]
  agg = {"kind": name} | ({"norm_len": 5} if name == "constant" else {})
  case = case | {"hyper": case["hyper"] | {"agg": agg}}
  with jax.enable_x64(True):
    loss = halves(objective_of(case), logp_of(case), batch_of(case))
  np.testing.assert_allclose(loss, expected[name]["global_denominator"], rtol=1e-10)


def test_every_case_is_held_by_some_test():
  """By name, in this file or in that of the part which it is about."""
  tests = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
  assert len(LOSSES) + len(OTHERS) == 104
  assert {name for name in OTHERS if f'"{name}"' not in tests} == set()
