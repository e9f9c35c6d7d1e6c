"""KL penalties: which divergence do their gradients descend?  Advantages are 0, all states enumerated."""

import numpy as np

from experiments.estimator_lab import measure, policy, variants
from experiments.estimator_lab.claim import Claim, verdict
from experiments.estimator_lab.claims.common import EXACT, settings
from experiments.estimator_lab.size import Size

# The post that named the estimators speaks of their values; what their gradients descend is folklore.
FOLKLORE = "folklore; joschu.net/blog/kl-approx.html has the values"


def k1_in_loss_is_useless(size: Size) -> Claim:
  rule = f"|E ∇| ≤ {EXACT} times its root mean square, for every policy and reference"
  share = []
  for setting in _with_reference(size.policies):
    mean, square = _penalty("kl_k1", setting)
    share.append(float(np.linalg.norm(mean) / np.sqrt(square)))
  good = verdict({"": max(share) <= EXACT})
  text = "k1 in the loss is useless: noise with expected gradient 0"
  return Claim("k1_useless", text, FOLKLORE, rule, good, {"largest |E ∇| / rms": max(share)})


def k3_is_the_forward_kl(size: Size) -> Claim:
  return _divergence(
    size,
    "k3_forward",
    "The gradient of k3 in the loss is the forward KL's, KL(ref‖θ)",
    "kl_k3",
    ("token KL(ref‖θ)", "sequence KL(ref‖θ)"),
  )


def k2_is_the_reverse_kl(size: Size) -> Claim:
  return _divergence(
    size,
    "k2_reverse",
    "The gradient of k2 in the loss is the reverse KL's, KL(θ‖ref)",
    "kl_k2",
    ("token KL(θ‖ref)", "sequence KL(θ‖ref)"),
  )


def k1_in_reward_is_exact(size: Size) -> Claim:
  rule = f"RLOO with R = 0 − k1, G = 2, enumerated: |E ĝ + ∇KL(θ‖ref)| ≤ {EXACT} |∇KL|, sequence level"
  objective = variants.build("rloo", shape={"kl": dict(fn="kl_k1", beta=1.0)})
  errors = []
  for setting in _with_reference(size.policies):
    silent = setting.world._replace(reward=np.zeros_like(setting.world.reward))
    setting = setting._replace(world=silent)
    truth = -policy.kl_gradients(setting.world, setting.theta, setting.ref)["sequence KL(θ‖ref)"]
    found = measure.measure(objective, setting, measure.enumerate_groups(setting, 2)).gradient
    errors.append(float(np.linalg.norm(found - truth) / np.linalg.norm(truth)))
  good = verdict({"": max(errors) <= EXACT})
  text = "k1 in the reward gives the exact gradient of the sequences' KL(θ‖ref)"
  return Claim("k1_reward", text, "arXiv:2402.14740", rule, good, {"largest error": max(errors)})


def _divergence(size: Size, name: str, text: str, fn: str, levels: tuple[str, str]) -> Claim:
  """Tests if the penalty's expected gradient equals the divergence's, per token and per sequence."""
  rule = (
    f"|E ∇ − ∇KL| ≤ {EXACT} |∇KL| on every policy, for the KL per token with the visited states held "
    "fixed, and for that of whole sequences"
  )
  errors = {}
  for setting in _with_reference(size.policies):
    mean, _ = _penalty(fn, setting)
    for level, truth in policy.kl_gradients(setting.world, setting.theta, setting.ref).items():
      error = float(np.linalg.norm(mean - truth) / np.linalg.norm(truth))
      errors[level] = max(error, errors.get(level, 0.0))
  held = ("states are held fixed", "sequences are compared")
  good = verdict({held[i]: errors[level] <= EXACT for i, level in enumerate(levels)})
  return Claim(name, text, FOLKLORE, rule, good, {"largest relative distance": errors})


def _penalty(fn: str, setting: measure.Setting) -> tuple[np.ndarray, float]:
  """Returns expectation and mean square of +∇ of the penalty alone, one response at a time."""
  objective = variants.build("rloo", penalty={"kl": dict(fn=fn, beta=1.0)})
  groups = measure.enumerate_groups(setting, 1)
  gradient, _, _ = measure.estimates(objective, setting, groups.rows)
  w = groups.weight[:, None, None]
  return -(w * gradient).sum(0), float((w * gradient**2).sum())


def _with_reference(count: int) -> list[measure.Setting]:
  """Returns policies whose reference is another random policy, not close to them."""
  return [
    s._replace(ref=policy.random_policy(s.world, 1000 + seed))
    for seed, s in enumerate(settings(count))
  ]
