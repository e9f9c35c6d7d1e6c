"""Baselines, standard deviations and length: what a group's advantages do to the gradient."""

import numpy as np

from experiments.estimator_lab import measure, policy, variants
from experiments.estimator_lab.claim import Claim, verdict
from experiments.estimator_lab.claims.common import EXACT, WORLD, settings
from experiments.estimator_lab.size import Size
from grpojax.objective.check import NEED_A_GROUP

GRPO, DR_GRPO, RLOO = (f"arXiv:{n}" for n in ("2402.03300", "2503.20783", "2402.14740"))


def rloo_is_unbiased(size: Size) -> Claim:
  rule = f"|E ĝ − ∇J| ≤ {EXACT} |∇J| for G = 2 and 3 on every policy, all groups enumerated"
  objective, worst = variants.build("rloo"), {}
  for G in (2, 3):
    found = [
      measure.measure(objective, s, measure.enumerate_groups(s, G)) for s in settings(size.policies)
    ]
    worst[f"G = {G}"] = max(m.bias for m in found)
  good = verdict({G: error <= EXACT for G, error in worst.items()})
  return Claim(
    "rloo_unbiased", "On-policy, RLOO is unbiased", RLOO, rule, good, {"largest bias": worst}
  )


def dr_grpo_is_a_scale(size: Size) -> Claim:
  rule = f"|T E ĝ − (G−1)/G ∇J| ≤ {EXACT} |∇J|, T the constant budget, G = 2 and 3, all policies"
  T = WORLD.mask.shape[1]
  objective = variants.build("dr_grpo", aggregate=dict(fn="constant", budget=T))
  worst = {}
  for G in (2, 3):
    errors = []
    for s in settings(size.policies):
      truth = policy.true_gradient(s.world, s.theta)
      found = T * measure.measure(objective, s, measure.enumerate_groups(s, G)).gradient
      errors.append(np.linalg.norm(found - (G - 1) / G * truth) / np.linalg.norm(truth))
    worst[f"G = {G}"] = float(max(errors))
  good = verdict({G: error <= EXACT for G, error in worst.items()})
  text = "Dr. GRPO's expected gradient is (G−1)/G of RLOO's: a scale, no change of direction"
  return Claim("dr_grpo_scale", text, DR_GRPO, rule, good, {"largest error": worst}, identity=True)


def std_biases_by_difficulty(size: Size) -> Claim:
  rule = (
    "per G: E ĝ = w(p) ∇p with w varying by more than 1 % over p in {.05, .2, .5, .8, .95} for "
    "zscore, and by less than 1e-9 for center; every group of a two-response prompt enumerated"
  )
  world = policy.tree(2, 1, lambda response: float(response[0] == 1))
  factor, cases = {}, {}
  for G in (2, 3, 4, 8, 16):
    spread = {}
    for fn in ("zscore", "center"):
      w = [_factor(fn, world, p, G) for p in (0.05, 0.2, 0.5, 0.8, 0.95)]
      factor[f"{fn}, G = {G}"] = w
      spread[fn] = max(w) / min(w) - 1
    cases[f"G = {G}"] = spread["zscore"] > 0.01 and spread["center"] < EXACT
  text = "GRPO's division by the std weighs prompts by their difficulty"
  return Claim("std_difficulty", text, DR_GRPO, rule, verdict(cases), {"w(p) by p": factor})


def _factor(fn: str, world: policy.World, p: float, G: int) -> float:
  """Returns E ĝ / ∇p of a prompt with success rate p."""
  setting = measure.on_policy(world, np.log([[1 - p, p]]))
  objective = variants.build("rloo", advantage=dict(fn=fn))
  found = measure.measure(objective, setting, measure.enumerate_groups(setting, G))
  return float(found.norm * np.sign(found.cosine))


def length_mean_favours_long_wrong(size: Size) -> Claim:
  rule = (
    "reward blind to length (the first token decides), G = 3, enumerated: along E ĝ, E[length | wrong] "
    f"rises and E[length | right] falls for sequence_mean on every policy; for constant both stay "
    f"within {EXACT}"
  )
  world = policy.tree(3, 4, policy.first_token)
  aggregates = {
    "sequence_mean": dict(fn="sequence_mean"),
    "constant": dict(fn="constant", budget=4),
    "token_mean": dict(fn="token_mean"),
  }
  change = {}
  for name, knobs in aggregates.items():
    objective = variants.build("dr_grpo", aggregate=knobs)
    change[name] = [_length_change(objective, world, seed) for seed in range(size.policies)]
  biased = all(wrong > EXACT and right < -EXACT for wrong, right in change["sequence_mean"])
  flat = all(abs(x) < EXACT for pair in change["constant"] for x in pair)
  numbers = {
    f"d length/dη (wrong, right), {name}": np.mean(pairs, 0).tolist()
    for name, pairs in change.items()
  }
  text = "1/|o| favours long wrong answers (and short right ones); a constant denominator does not"
  good = verdict({"1/|o| is there and a constant is not": biased and flat})
  return Claim("length_bias", text, DR_GRPO, rule, good, numbers)


def _length_change(objective, world: policy.World, seed: int) -> tuple[float, float]:
  """Returns d/dη E[length | wrong] and E[length | right] at θ + η E ĝ / |E ĝ|, of non-empty answers."""
  theta = policy.random_policy(world, seed)
  theta[0] = 0.0
  setting = measure.on_policy(world, theta)
  step = measure.measure(objective, setting, measure.enumerate_groups(setting, 3)).gradient
  step, length = step / np.linalg.norm(step), world.mask.sum(1)
  answered = world.token[:, 0] > 0  # the empty answer is wrong and short by definition
  changes = []
  for kind in (world.reward == 0, world.reward == 1):
    p = policy.probability(world, theta) * (kind & answered)
    centered = p / p.sum() * (length - p @ length / p.sum())
    changes.append(float((policy.score_sum(world, theta, centered) * step).sum()))
  return tuple(changes)


def uniform_groups_give_zero(size: Size) -> Claim:
  rule = (
    "equal rewards of .1, .7, 1 or 123.4, G = 3: max |∇| is exactly 0.0 for every recipe whose advantage "
    "compares within a group"
  )
  names = [
    n for n in variants.RECIPES if variants.recipe(n).advantage.fn in (*NEED_A_GROUP, "gigpo")
  ]
  setting = settings(1)[0]
  largest = {}
  for name in names:
    objective = variants.build(name)
    largest[name] = max(_uniform(objective, setting, reward) for reward in (0.1, 0.7, 1.0, 123.4))
  good = verdict({name: x == 0.0 for name, x in largest.items()})
  text = "A group of equal rewards gives exactly no gradient (penalties apart)"
  return Claim("uniform_groups", text, "arXiv:2503.14476", rule, good, {"max |∇|": largest}, identity=True)


def _uniform(objective, setting: measure.Setting, reward: float) -> float:
  world = setting.world._replace(reward=np.full_like(setting.world.reward, reward))
  rows = measure.enumerate_groups(setting, 3).rows
  gradient, _, _ = measure.estimates(objective, setting._replace(world=world), rows)
  return float(np.abs(gradient).max())


def group_of_two_is_a_sign(size: Size) -> Claim:
  rule = "|A − sign · 2^−½| ≤ 1e-3 for gaps of 1e-2, 1 and 100, and A = 0 for gap 0; the std has ε = 1e-6"
  objective = variants.build("rloo", advantage=dict(fn="zscore", eps=1e-6, ddof=1))
  gaps, found = (0.0, 1e-6, 1e-2, 1.0, 100.0), {}
  bandit = policy.tree(2, 1, lambda response: float(response[0] == 1))
  for gap in gaps:
    world = bandit._replace(reward=np.array([0.0, gap]))
    setting = measure.on_policy(world, np.zeros((1, 2)))
    gradient, _, _ = measure.estimates(objective, setting, np.array([[0, 1]]))
    found[f"gap {gap:g}"] = float(gradient[0, 0, 1] / 0.5)  # slope ½ (A₁ − A₀) (1 − π) = A₁ / 2
  sign = all(abs(found[f"gap {gap:g}"] - 0.5**0.5) <= 1e-3 for gap in gaps[2:])
  good = verdict({"the gap is far above ε": sign and found["gap 0"] == 0.0})
  text = "With G = 2 the z-score is a pairwise sign, whatever the gap"
  return Claim("g2_sign", text, GRPO, rule, good, {"A of the better one": found}, identity=True)


def on_policy_surrogates_agree(size: Size) -> Claim:
  rule = f"|E ĝ − E ĝ(GRPO)| ≤ {EXACT} |E ĝ(GRPO)| with GRPO's advantage and sequence_mean, G = 3"
  others = {name: {} for name in ("gspo", "gspo_token", "gmpo", "cispo", "sapo", "rloo")}
  others["grpo with sequence_product"] = dict(ratio=dict(fn="sequence_product"))
  same = dict(advantage=dict(fn="zscore"), aggregate=dict(fn="sequence_mean"), select={})
  s = settings(1)[0]
  groups = measure.enumerate_groups(s, 3)
  base = measure.measure(variants.build("grpo", **same), s, groups).gradient
  error, cosine = {}, {}
  for name, slots in others.items():
    found = measure.measure(variants.build(name.split()[0], **same, **slots), s, groups).gradient
    error[name] = float(np.linalg.norm(found - base) / np.linalg.norm(base))
    cosine[name] = float((found * base).sum() / (np.linalg.norm(found) * np.linalg.norm(base)))
  good = verdict({name: x <= EXACT for name, x in error.items()})
  text = "On-policy, all ratio units and clip rules are one estimator"
  return Claim("on_policy_same", text, "each paper", rule, good, {"difference": error, "cosine": cosine})
