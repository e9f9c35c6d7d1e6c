"""One ratio per completion: how often does it clip, and is its gradient quieter?"""

import itertools

import numpy as np

from experiments.estimator_lab import measure, policy, settings, variants
from experiments.estimator_lab.claim import Claim, verdict
from experiments.estimator_lab.size import Size

GSPO = "arXiv:2507.18071"
GRPO_CLIP = dict(fn="ppo_clip", low=0.2, high=0.27)  # the baseline of the GSPO paper
GROUP = 8
DRIFTS = (("rate", 0.01), ("rate", 0.1), ("rate", 0.3), ("noise", 0.3), ("noise", 1.0))
UPDATES = 4  # minibatches per rollout in the paper


def gspo_clips_two_orders_more(size: Size) -> Claim:
  rule = (
    "wherever GRPO (.2/.27) clips .03 % to .5 % of the tokens (the paper: .13 %), GSPO (3e-4/4e-4) clips "
    "at least 10^1.5 times as many; drifts of 4 updates, scaled by .01 to 3, mean over drifts, per length"
  )
  found, cases = {}, {}
  for T in size.lengths:
    for scale, grpo, gspo in clip_curve(T, size):
      found[f"T = {T}, drift × {scale:.3g}"] = dict(grpo=grpo, gspo=gspo)
      if 3e-4 <= grpo <= 5e-3:
        cases[f"T = {T} at drift × {scale:.3g}"] = gspo >= 10**1.5 * grpo
  text = "At the published ranges GSPO clips two orders more tokens than GRPO"
  good = verdict(cases) if cases else "undecided: at this size GRPO never clips such a share"
  return Claim("gspo_clips", text, GSPO, rule, good, {"cases": cases, "clipped": found})


def clip_curve(T: int, size: Size) -> list[tuple[float, float, float]]:
  """Returns (scale of the drift, share of clipped tokens of GRPO, of GSPO), means over drifts."""
  objectives = variants.build("grpo", surrogate=GRPO_CLIP), variants.build("gspo")
  scales, shares = np.geomspace(0.01, 3, 16), []
  for seed, s in enumerate(_updated(T, 0.3, size.policies)):
    groups = _sample(s, size.groups // 20, seed)
    moved = [s._replace(theta=s.old + scale * (s.theta - s.old)) for scale in scales]
    shares.append([[measure.measure(o, m, groups).clipped for o in objectives] for m in moved])
  return [(float(x), *map(float, pair)) for x, pair in zip(scales, np.mean(shares, 0), strict=True)]


def gspo_has_lower_variance(size: Size) -> Claim:
  rule = (
    "on the longest responses, trace of the covariance / |E ĝ|² is lower for GSPO than for GRPO by more "
    "than 2 standard errors over drifts, and the cosine with ∇J is not lower, (a) at the published ranges, "
    "(b) with no clipping; drifts of 4 updates at rates .01, .1, .3, and of noise .3 and 1 per logit, as "
    "changed routing makes"
  )
  found, cases, ends = {}, {}, sorted({min(size.lengths), max(size.lengths)})
  for label, *clips in (
    ("published ranges", GRPO_CLIP, variants.recipe("gspo").surrogate.to_dict()),
    ("no clipping", dict(fn="linear"), dict(fn="linear")),
  ):
    objectives = [variants.build(n, surrogate=c) for n, c in zip(("grpo", "gspo"), clips, strict=True)]
    for T, (kind, size_of_drift) in itertools.product(ends, DRIFTS):
      key = f"{label}, {kind} {size_of_drift}"
      drifts = DRIFT[kind](T, size_of_drift, 4 * size.policies)
      found[f"T = {T}, {key}"] = row = _log_noise_ratio(objectives, drifts, size)
      if ends[-1] == T:
        cases[key] = quieter(row)
  text = "GSPO has the quieter gradient on long responses"
  return Claim("gspo_variance", text, GSPO, rule, verdict(cases), found)


def quieter(row: dict) -> bool:
  """Returns True if GSPO is quieter, and not at the price of its direction."""
  return row["log_noise_gspo_over_grpo"] + 2 * row["error"] < 0 and row["cosine_gspo"] >= row["cosine_grpo"]


def _log_noise_ratio(objectives: list, drifts, size: Size) -> dict:
  """Returns log(noise of GSPO / noise of GRPO): mean and standard error over drifts; cosines with ∇J."""
  ratios, cosines = [], []
  for seed, s in enumerate(drifts):
    groups = _sample(s, size.groups // 4, seed)
    grpo, gspo = (measure.measure(o, s, groups) for o in objectives)
    ratios.append(np.log(gspo.noise / grpo.noise))
    cosines.append((grpo.cosine, gspo.cosine))
  finite = np.isfinite(ratios).all()  # one drift without any signal left is infinite noise
  error = np.std(ratios, ddof=1) / np.sqrt(len(ratios)) if finite else 0.0
  grpo, gspo = np.mean(cosines, 0).tolist()
  mean = float(np.mean(ratios))
  return dict(log_noise_gspo_over_grpo=mean, error=float(error), cosine_grpo=grpo, cosine_gspo=gspo)


def _updated(T: int, rate: float, count: int):
  """Returns settings whose π_θ is UPDATES updates ahead."""
  for seed in range(count):
    world, old = policy.counting(T, seed)
    yield settings.stale(world, old, UPDATES, rate, seed)


def _noisy(T: int, deviation: float, count: int):
  """Returns settings whose π_θ is π_old with independent noise on each logit."""
  for seed in range(count):
    world, old = policy.counting(T, seed)
    moved = settings.sampler(old, f"noise {deviation}", 3000 + seed)
    yield measure.Setting(world, moved, old, old, old)


DRIFT = {"rate": _updated, "noise": _noisy}


def _sample(setting, M: int, seed: int):
  return measure.sample_groups(setting, GROUP, M, 10_000 + seed)
