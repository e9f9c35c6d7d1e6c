"""The estimator laboratory: its own mathematics, verdicts that must be, and bugs that must flip them."""

import inspect
import itertools
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.estimator_lab import __main__ as lab
from experiments.estimator_lab import claims, measure, policy, settings, variants
from experiments.estimator_lab.claim import verdict
from experiments.estimator_lab.claims import advantages, clipping, kl, mismatch, trust
from experiments.estimator_lab.claims.common import WORLD
from experiments.estimator_lab.size import FAST
from grpojax import objective as objective_lib
from grpojax.objective import advantage, correct, penalty, surrogate

THETA = policy.random_policy(WORLD, 5)
MUST_HOLD = (
  "rloo_unbiased", "dr_grpo_scale", "length_bias", "uniform_groups", "g2_sign",
  "k1_useless", "k1_reward", "clip_higher", "upper_clip", "exact_ratio",
)  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict:
  out = tmp_path_factory.mktemp("lab")
  lab.main(["--fast", f"--out={out}"])
  for name in ("variants", "sweeps", "mismatch", "clipping"):
    assert (out / f"{name}.png").stat().st_size > 10_000
  assert (out / "tables.md").read_text().count("\n| ") > 200
  return json.loads((out / "results.json").read_text())


@pytest.mark.slow
def test_every_claim_has_a_verdict_and_the_numbers_behind_it(results):
  assert len(results["claims"]) == len(claims.ALL)
  for claim in results["claims"]:
    assert claim["verdict"].split()[0] in ("holds", "fails", "undecided:")
    assert claim["rule"] and claim["source"] and claim["numbers"]


@pytest.mark.slow
def test_what_mathematics_demands_holds(results):
  verdicts = {claim["name"]: claim["verdict"] for claim in results["claims"]}
  assert {name: verdicts[name] for name in MUST_HOLD} == dict.fromkeys(MUST_HOLD, "holds")
  assert verdicts["k3_forward"] == verdicts["k2_reverse"] == "holds only if states are held fixed"
  same = "gspo or gspo_token or gmpo or cispo or sapo or rloo"
  assert verdicts["on_policy_same"] == f"holds only if {same}"  # and not with the product over the sequence
  assert verdicts["std_difficulty"] == "holds only if G = 4 or G = 8 or G = 16"
  assert verdicts["keep_gradient"] == "holds only if CISPO or SAPO or GMPO at |log r| < .4"


@pytest.mark.slow
def test_on_policy_nothing_is_clipped_and_rloo_has_no_bias(results):
  rows = [row for row in results["variants"] if row["scenario"] == "on-policy"]
  assert len(rows) > 15
  assert all(row["lost"] == 0 for row in rows)
  rloo = next(row for row in rows if row["variant"] == "rloo")
  np.testing.assert_allclose([rloo["cosine"], rloo["norm"]], 1, rtol=1e-9)


def test_every_response_is_listed_once():
  world = policy.tree(3, 3, policy.odd_sum)
  responses = {tuple(t[: int(m.sum())]) for t, m in zip(world.token, world.mask, strict=True)}
  assert len(responses) == len(world.reward) == 15
  np.testing.assert_allclose(policy.probability(world, THETA).sum(), 1, rtol=1e-12)
  assert world.ended.sum() == 7  # 1 + 2 + 4 end; the 8 others are cut by the budget


def test_gradients_are_those_of_finite_differences():
  ref = policy.random_policy(WORLD, 6)
  exact = policy.kl_gradients(WORLD, THETA, ref)
  q, log_q = policy.probability(WORLD, ref), policy.logp(WORLD, ref).sum(-1)

  def reverse(theta):
    return policy.probability(WORLD, theta) @ (policy.logp(WORLD, theta).sum(-1) - log_q)

  def forward(theta):
    return q @ (log_q - policy.logp(WORLD, theta).sum(-1))

  pairs = (
    (policy.true_gradient(WORLD, THETA), lambda theta: policy.expected_reward(WORLD, theta)),
    (exact["sequence KL(θ‖ref)"], reverse),
    (exact["sequence KL(ref‖θ)"], forward),
  )
  for gradient, fn in pairs:
    np.testing.assert_allclose(gradient, _differences(fn, THETA), atol=1e-8)


def test_token_divergences_hold_the_visited_prefixes_fixed():
  ref = policy.random_policy(WORLD, 6)
  log_ref, seen = policy.log_policy(ref), policy.visits(WORLD, THETA)
  exact = policy.kl_gradients(WORLD, THETA, ref)

  def reverse(theta):
    log_pi = policy.log_policy(theta)
    return (seen * np.exp(log_pi) * (log_pi - log_ref)).sum()

  def forward(theta):
    return (seen * np.exp(log_ref) * (log_ref - policy.log_policy(theta))).sum()

  np.testing.assert_allclose(exact["token KL(θ‖ref)"], _differences(reverse, THETA), atol=1e-8)
  np.testing.assert_allclose(exact["token KL(ref‖θ)"], _differences(forward, THETA), atol=1e-8)


def test_multisets_are_ordered_groups_counted_once():
  setting = settings.mismatched(WORLD, THETA, "noise 0.5", 0)
  objective = variants.build("grpo")
  rows = np.array(list(itertools.product(range(len(WORLD.reward)), repeat=2)))
  mu = policy.probability(WORLD, setting.sampler)
  ordered = measure.Groups(rows, mu[rows].prod(1), True)
  one = measure.measure(objective, setting, ordered)
  other = measure.measure(objective, setting, measure.enumerate_groups(setting, 2))
  np.testing.assert_allclose(one.gradient, other.gradient, atol=1e-15)
  np.testing.assert_allclose(one[1:-1], other[1:-1], rtol=1e-9)


def test_a_gradient_by_logits_is_that_of_the_loss_itself():
  """The laboratory's chain rule against jax.grad through a softmax of its own."""
  setting = settings.stale(WORLD, THETA, 2, 0.5, 0)
  objective, rows = variants.build("grpo"), np.array([[1, 9, 14]])
  with jax.enable_x64(True):
    batch = jax.tree.map(lambda x: x[0], measure.batch(setting, rows))
    prepared = objective_lib.prepare(objective, batch)

    def gain(theta):
      logp = jax.nn.log_softmax(theta)[WORLD.state, WORLD.token][rows] * WORLD.mask[rows]
      return -objective_lib.loss(objective, logp, prepared)[0]

    wanted = np.asarray(jax.jit(jax.grad(gain))(setting.theta))
  found, _, _ = measure.estimates(objective, setting, rows)
  assert np.abs(wanted).max() > 1e-3
  np.testing.assert_allclose(found[0], wanted, atol=1e-12)


def test_samples_agree_with_enumeration_within_their_error_bars():
  setting, objective = measure.on_policy(WORLD, THETA), variants.build("grpo")
  exact = measure.measure(objective, setting, measure.enumerate_groups(setting, 3))
  sampled = measure.measure(objective, setting, measure.sample_groups(setting, 3, 4000, 0))
  for key in ("norm", "noise", "variance"):
    assert 0 < sampled.error[key] < 0.1 * getattr(exact, key)
    assert abs(getattr(sampled, key) - getattr(exact, key)) < 5 * sampled.error[key]


def test_clipping_takes_signal_only_where_the_policy_has_moved():
  setting = settings.stale(WORLD, policy.random_policy(WORLD, 0), 16, 0.5, 0)
  groups = measure.enumerate_groups(setting, 2)
  narrow, wide, none = (
    measure.measure(variants.build("grpo", surrogate=knobs), setting, groups).lost
    for knobs in (
      dict(fn="ppo_clip", low=1e-6, high=1e-6),
      dict(fn="ppo_clip", low=0.2, high=0.2),
      dict(fn="linear"),
    )
  )
  assert narrow > wide > none == 0


IDENTITIES = {"dr_grpo_scale", "uniform_groups", "g2_sign", "clip_higher", "upper_clip"}


@pytest.mark.slow
def test_the_page_has_every_rule_with_its_thresholds_and_says_what_is_algebra(results):
  page = (Path(__file__).parents[2] / "docs" / "estimator_lab.md").read_text()
  for claim in results["claims"]:
    kind = "identity" if claim["identity"] else "finding"
    assert claim["identity"] == (claim["name"] in IDENTITIES)
    cells = (claim["text"], claim["source"], kind, claim["rule"])
    assert "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " | " in page


def measured(**numbers):
  plain = dict.fromkeys(measure.Measurement._fields, 0.0)
  return measure.Measurement(**plain | numbers)


def test_a_learning_rate_does_not_decide_between_corrections():
  """Twice the gradient has four times the variance and another bias, and the same cosine and noise."""
  exact = measured(cosine=1.0, noise=10.0, bias=0.0, variance=10.0)
  none = measured(cosine=0.9, noise=8.0, bias=0.5, variance=8.0)
  for scale in (0.1, 1.0, 3.0):
    scaled = dict(bias=abs(scale - 1), variance=9.0 * scale**2)
    assert mismatch.quieter(measured(cosine=0.95, noise=9.0, **scaled), exact)
    assert mismatch.straighter(measured(cosine=0.95, noise=9.0, **scaled), none)
    assert not mismatch.quieter(measured(cosine=0.95, noise=11.0, **scaled), exact)
    assert not mismatch.straighter(measured(cosine=0.89, noise=9.0, **scaled), none)


def test_less_noise_around_a_worse_direction_is_not_quieter():
  row = dict(log_noise_gspo_over_grpo=-0.075, error=0.019, cosine_grpo=0.77, cosine_gspo=0.57)
  assert not trust.quieter(row) and trust.quieter(row | dict(cosine_gspo=0.77))
  assert not trust.quieter(row | dict(cosine_gspo=0.9, error=0.05))


def test_a_correction_that_never_acts_is_no_case():
  claim = mismatch.corrections_remove_bias(FAST)
  assert claim.numbers["temperature 0.8"]["wtrs"]["acts_in"] == 0.0
  assert "temperature 0.8" not in claim.verdict or "wtrs" not in claim.verdict.split("temperature 0.8")[1]


def test_rloos_clip_can_fire_on_more():
  claim = clipping.rloo_clip_is_rare(FAST)
  assert claim.verdict == "holds only if token at rate 0.1 or sequence_product at rate 0.1"


def test_verdicts():
  assert verdict({"a": True, "b": True}) == "holds"
  assert verdict({"a": False, "b": False}) == "fails"
  assert verdict({"a": True, "b": False, "c": True}) == "holds only if a or c"


def test_an_unknown_mismatch_is_refused():
  with pytest.raises(ValueError, match="'bf8' is unknown; choose noise, temperature or bf16"):
    settings.sampler(THETA, "bf8", 0)


def _no_baseline_for_the_best(group):
  return advantage.center(group) * (1 + group.reward)


def _std_of_two(group, *, eps, ddof):
  return advantage.center(group)


def _k1_with_slope(logp, batch, entropy):
  return 1.01 * logp * (batch.mask > 0) + 0.01 * logp**2


def _k3_upside_down(logp, batch, entropy):
  x = penalty._x(logp, batch)
  return jax.numpy.exp(x) - 1 - x


def _twice_as_wide(log_ratio, logp, advantage, *, low=0.2, high=0.2):
  r = jax.numpy.exp(log_ratio)
  return jax.numpy.minimum(r * advantage, jax.numpy.clip(r, 1 - low, 1 + 2 * high) * advantage)


def _product_of_tokens_but_the_last(batch, *, high):
  return jax.numpy.exp(correct._delta(batch)[..., :-1].sum(-1, keepdims=True))


@pytest.mark.parametrize(
  ("claim", "module", "name", "wrong"),
  [
    (advantages.rloo_is_unbiased, advantage, "leave_one_out", advantage.zscore),
    (advantages.rloo_is_unbiased, advantage, "leave_one_out", _no_baseline_for_the_best),
    (advantages.dr_grpo_is_a_scale, advantage, "center", advantage.leave_one_out),
    (advantages.group_of_two_is_a_sign, advantage, "zscore", _std_of_two),
    (kl.k1_in_loss_is_useless, penalty, "kl_k1", _k1_with_slope),
    (kl.k3_is_the_forward_kl, penalty, "kl_k3", _k3_upside_down),
    (kl.k2_is_the_reverse_kl, penalty, "kl_k2", penalty.kl_k3),
    (clipping.clip_higher_steps, surrogate, "ppo_clip", _twice_as_wide),
    (clipping.upper_clip_needs_small_old, surrogate, "ppo_clip", _twice_as_wide),
    (mismatch.exact_ratio_is_unbiased, correct, "sequence_truncated_is", _product_of_tokens_but_the_last),
  ],
)
def test_a_planted_bug_flips_the_verdict(monkeypatch, claim, module, name, wrong):
  def planted(*args, **knobs):
    return wrong(*args, **knobs)

  planted.__module__, planted.__name__ = module.__name__, name
  planted.__signature__ = inspect.signature(getattr(module, name))
  monkeypatch.setattr(module, name, planted)
  assert claim(FAST).verdict == "fails"


def _differences(fn, theta: np.ndarray, h: float = 1e-5) -> np.ndarray:
  """Central differences of a scalar function of the logits."""
  gradient = np.zeros_like(theta)
  for i in np.ndindex(*theta.shape):
    step = np.zeros_like(theta)
    step[i] = h
    gradient[i] = (fn(theta + step) - fn(theta - step)) / (2 * h)
  return gradient
