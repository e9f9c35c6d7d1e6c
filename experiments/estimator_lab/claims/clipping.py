"""Where does a clip bind, and what is left of the gradient there?"""

import itertools

import numpy as np

from experiments.estimator_lab import measure, policy, settings, variants
from experiments.estimator_lab.claim import Claim, verdict
from experiments.estimator_lab.claims.common import WORLD
from experiments.estimator_lab.size import Size
from grpojax.types import Batch

DAPO = "arXiv:2503.14476"
UPPER, LOWER = 0, 1  # which response of a group moves: the better or the worse one


def clip_higher_steps(size: Size) -> Claim:
  rule = (
    "a token's probability rises by the largest ratio that still has a gradient (bisected to 1e-9); "
    "ln 10 over the log of it is within .05 of 12.6 (ε = .2) and 9.3 (ε = .28)"
  )
  steps = {}
  for high in (0.2, 0.28):
    objective = _with_high(high)
    inside, outside = 1.0, 2.0
    while outside - inside > 1e-9:
      middle = (inside + outside) / 2
      alive = _slopes(objective, 0.01, middle)[0] > 0
      inside, outside = (middle, outside) if alive else (inside, middle)
    steps[f"ε = {high}"] = float(np.log(10) / np.log(inside))
  cases = {k: abs(steps[k] - n) <= 0.05 for k, n in (("ε = 0.2", 12.6), ("ε = 0.28", 9.3))}
  text = "From .01 to .1, clip-higher needs 9.3 saturated steps instead of 12.6"
  return Claim("clip_higher", text, DAPO, rule, verdict(cases), {"steps": steps}, identity=True)


def upper_clip_needs_small_old(size: Size) -> Claim:
  rule = (
    "for π_old on a grid .01 to .99 by .01: π_θ = 1 − 1e-12 has no gradient (A > 0) if and only if "
    "π_old < 1/(1+ε), for ε = .2 and .28"
  )
  grid, wrong, cases = np.arange(1, 100) / 100, {}, {}
  for high in (0.2, 0.28):
    binds = _slopes(_with_high(high), grid, (1 - 1e-12) / grid) == 0
    wrong[f"ε = {high}"] = grid[binds != (grid < 1 / (1 + high))].tolist()
    cases[f"ε = {high}"] = not wrong[f"ε = {high}"]
  text = "The upper clip can bind only where π_old < 1/(1+ε)"
  numbers = {"grid points that differ": wrong}
  return Claim("upper_clip", text, DAPO, rule, verdict(cases), numbers, identity=True)


def _with_high(high: float):
  return variants.build("dapo", surrogate=dict(fn="ppo_clip", low=0.2, high=high))


def rloo_clip_is_rare(size: Size) -> Claim:
  rule = (
    "RLOO's advantages with PPO's clip at .2 (token ratio; product over the sequence as TRL): clipped "
    "tokens, averaged over drifts, + 2 standard errors < 5 % after 1, 2, 4 and 8 updates, at rate .1, where "
    "a token hardly moves, and at rate .5"
  )
  found, cases = {}, {}
  for ratio in ("token", "sequence_product"):
    objective = variants.build(
      "rloo", ratio=dict(fn=ratio), surrogate=dict(fn="ppo_clip", low=0.2, high=0.2)
    )
    for rate, updates in itertools.product((0.1, 0.5), (1, 2, 4, 8)):
      mean, error, moved = _clipped(objective, updates, rate, 2 * size.policies)
      found[f"{ratio}, {updates} updates, rate {rate}"] = dict(
        clipped=mean, error=error, mean_abs_log_ratio=moved
      )
      case = f"{ratio} at rate {rate}"
      cases[case] = cases.get(case, True) and mean + 2 * error < 0.05
  text = "In up to 8 updates, RLOO's clip fires on less than 5 % of the tokens"
  return Claim("rloo_clip", text, "arXiv:2402.14740", rule, verdict(cases), {"clipped": found})


def _clipped(objective, updates: int, rate: float, drifts: int) -> tuple[float, float, float]:
  """Returns the share of clipped tokens (mean, standard error over drifts) and E |log r| of a token."""
  shares, moved = [], []
  for seed in range(drifts):
    s = settings.stale(WORLD, policy.random_policy(WORLD, seed), updates, rate, seed)
    groups = measure.enumerate_groups(s, 3)
    shares.append(measure.measure(objective, s, groups).clipped)
    p = policy.probability(WORLD, s.old)[:, None] * WORLD.mask
    delta = np.abs(policy.logp(WORLD, s.theta) - policy.logp(WORLD, s.old))
    moved.append((p * delta).sum() / p.sum())
  error = np.std(shares, ddof=1) / np.sqrt(drifts)
  return float(np.mean(shares)), float(error), float(np.mean(moved))


def others_keep_gradient(size: Size) -> Claim:
  rule = (
    "|slope| > 0 for the ratios 1.26, 1.3, 1.45, 1.6, 2.5, 4.5 (A > 0) and their inverses (A < 0), all "
    "of which PPO at .2 must clip to 0; the recipes' own parameters"
  )
  ratios = np.array([1.26, 1.3, 1.45, 1.6, 2.5, 4.5])
  slopes = {}
  for name in ("grpo", "cispo", "sapo", "gmpo"):
    objective = variants.build(name)
    sides = _slopes(objective, 0.1, ratios), _slopes(objective, 0.5, 1 / ratios, LOWER)
    slopes[name] = np.abs(np.concatenate(sides))
  clipped, near = (slopes["grpo"] == 0).all(), np.tile(np.log(ratios) < 0.4, 2)
  cases = {n.upper(): clipped and (slopes[n] > 0).all() for n in ("cispo", "sapo")}
  cases["GMPO at |log r| < .4"] = clipped and (slopes["gmpo"][near] > 0).all()
  cases["GMPO beyond"] = clipped and (slopes["gmpo"][~near] > 0).all()
  smallest = {f"{n}, smallest |slope|": float(x.min()) for n, x in slopes.items()}
  smallest["gmpo, smallest |slope| at |log r| < .4"] = float(slopes["gmpo"][near].min())
  text = "GMPO, CISPO and SAPO keep a gradient where PPO's is zero"
  source = "arXiv:2507.20673, 2506.13585, 2511.20347"
  return Claim("keep_gradient", text, source, rule, verdict(cases), smallest)


def _slopes(objective, old, ratio, side: int = UPPER) -> np.ndarray:
  """Returns −∂loss/∂log π of a token at π_old = `old` that has moved by `ratio`, [M] each.

  The token is the better (UPPER, A > 0) or the worse (LOWER, A < 0) of a group of two responses of one
  token; the other response has not moved.
  """
  old, ratio = np.broadcast_arrays(np.atleast_1d(old), np.atleast_1d(ratio))
  other = np.full_like(old, 0.5, float)
  before = np.log(np.stack([old, other], 1))[:, None, :, None]
  reward = np.broadcast_to([1.0 - side, float(side)], before.shape[:3])
  batch = Batch(
    mask=np.ones_like(before),
    reward=reward,
    accuracy=reward,
    valid=np.ones(reward.shape, bool),
    ended=np.ones(reward.shape, bool),
    old_logp=before,
    sampler_logp=before,
  )
  after = before[:, 0] + np.log(np.stack([ratio, np.ones_like(ratio)], 1))[..., None]
  return -measure.slopes(objective, batch, after)[0][:, 0, 0]
