"""Corrections for a sampler that is not the learner: what do they cost, what do they buy?"""

import numpy as np

from experiments.estimator_lab import measure, policy, settings, variants
from experiments.estimator_lab.claim import Claim, verdict
from experiments.estimator_lab.claims.common import EXACT, WORLD, share
from experiments.estimator_lab.size import Size

KINDS = ("noise 0.5", "temperature 0.8", "bf16")
SHARE = 0.75  # of the draws
TRADERS = ("tis", "sequence_tis", "icepop", "mis", "geometric_rejection", "wtrs")


def exact_ratio_is_unbiased(size: Size) -> Claim:
  rule = f"RLOO, G = 3, enumerated: bias ≤ {EXACT} with Π ρ not truncated, > {EXACT} without; all draws"
  found, cases = {}, {}
  for kind in KINDS:
    bias = {name: [m.bias for m in draws(name, kind, size)] for name in ("none", "sequence_is")}
    found[kind] = {name: max(values) for name, values in bias.items()}
    cases[kind] = max(bias["sequence_is"]) <= EXACT < min(bias["none"])
  text = "Mismatch biases the gradient, and the exact ratio of the sequences removes the bias"
  return Claim("exact_ratio", text, "fengyao.notion.site", rule, verdict(cases), {"largest bias": found})


def corrections_accept_bias(size: Size) -> Claim:
  text = "Against the exact ratio, TIS, IcePop, MIS, geometric RS and WTRS trade direction for less noise"
  return _compare(size, "mismatch_against_exact", text, "sequence_is", "a lower cosine and less", quieter)


def corrections_remove_bias(size: Size) -> Claim:
  text = "Against no correction, TIS, IcePop, MIS, geometric RS and WTRS pay noise for a better direction"
  return _compare(size, "mismatch_against_none", text, "none", "a higher cosine and more", straighter)


def quieter(mine: measure.Measurement, exact: measure.Measurement) -> bool:
  """Returns True for less noise at a worse direction; a learning rate changes neither."""
  return mine.cosine < exact.cosine and mine.noise < exact.noise


def straighter(mine: measure.Measurement, none: measure.Measurement) -> bool:
  """Returns True for a better direction at more noise; a learning rate changes neither."""
  return mine.cosine > none.cosine and mine.noise > none.noise


def _compare(size: Size, name: str, text: str, other: str, what: str, better) -> Claim:
  rule = (
    f"RLOO, G = 3, enumerated; {what} noise (trace of the covariance / |E ĝ|²) than with {other} in at "
    f"least {SHARE:.0%} of the draws; a correction that never acts is no case"
  )
  found, cases = {}, {}
  for kind in KINDS:
    base, none = draws(other, kind, size), draws("none", kind, size)
    found[kind] = {other: _summary(base)}
    for trader in TRADERS:
      mine = draws(trader, kind, size)
      wins = share(better(m, o) for m, o in zip(mine, base, strict=True))
      acts = share(not np.array_equal(m.gradient, n.gradient) for m, n in zip(mine, none, strict=True))
      found[kind][trader] = _summary(mine) | dict(share_of_draws=wins, acts_in=acts)
    acting = [n for n in TRADERS if found[kind][n]["acts_in"] > 0]
    for won in (True, False):
      names = [n for n in acting if (found[kind][n]["share_of_draws"] >= SHARE) == won]
      if names:
        cases[f"{kind} with {', '.join(names)}"] = won
  source = "fengyao.notion.site, arXiv:2510.18855, verl"
  return Claim(name, text, source, rule, verdict(cases), found)


def draws(name: str, kind: str, size: Size) -> list[measure.Measurement]:
  """Measures RLOO with a correction, one independent policy and sampler per draw."""
  objective, found = variants.corrected(name), []
  for seed in range(size.policies):
    theta = policy.random_policy(WORLD, seed)
    setting = settings.mismatched(WORLD, theta, kind, 2000 + seed)
    found.append(measure.measure(objective, setting, measure.enumerate_groups(setting, 3)))
  return found


def _summary(found: list[measure.Measurement]) -> dict:
  keys = ("cosine", "noise", "bias", "variance")
  return {key: float(np.mean([getattr(m, key) for m in found])) for key in keys}
