"""Corrections for a sampler that is not the learner: what do they cost, what do they buy?"""

import numpy as np

from experiments.estimator_lab import measure, policy, settings, variants
from experiments.estimator_lab.claim import Claim, verdict
from experiments.estimator_lab.claims.common import EXACT, WORLD, share
from experiments.estimator_lab.size import Size

KINDS = ("noise 0.5", "temperature 0.8", "bf16")
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
  text = "Against the exact ratio, TIS, IcePop, MIS, geometric RS and WTRS accept bias for less variance"
  better = lambda mine, exact: mine.bias > exact.bias and mine.variance < exact.variance
  return _compare(size, "mismatch_against_exact", text, "sequence_is", "more bias and less", better)


def corrections_remove_bias(size: Size) -> Claim:
  text = "Against no correction, TIS, IcePop, MIS, geometric RS and WTRS pay variance for less bias"
  better = lambda mine, none: mine.bias < none.bias and mine.variance > none.variance
  return _compare(size, "mismatch_against_none", text, "none", "less bias and more", better)


def _compare(size: Size, name: str, text: str, other: str, what: str, better) -> Claim:
  rule = f"RLOO, G = 3, enumerated; {what} variance than with {other} in at least 3/4 of the draws"
  found, cases = {}, {}
  for kind in KINDS:
    base = draws(other, kind, size)
    found[kind] = {other: _summary(base)}
    for trader in TRADERS:
      mine = draws(trader, kind, size)
      wins = share(better(m, o) for m, o in zip(mine, base, strict=True))
      found[kind][trader] = _summary(mine) | dict(share_of_draws=wins)
    for won in (True, False):
      names = [n for n in TRADERS if (found[kind][n]["share_of_draws"] >= 0.75) == won]
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
  return {key: float(np.mean([getattr(m, key) for m in found])) for key in ("bias", "variance")}
