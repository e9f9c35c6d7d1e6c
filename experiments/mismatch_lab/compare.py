"""What a correction does to a cause's bias, variance and squared error, policy by policy against none.

Each number of one policy is exact; the interval is that of the mean log ratio over policies.
"""

import math

import numpy as np

from experiments.mismatch_lab.measure import BUDGET, Estimate
from experiments.turns_lab.compare import TOLD, log_ratio, told

FLOOR = 1e-5  # bias / |g|: the rounding of log-probs in float32, below which nothing is compared
RESTORED = 0.1  # of the bias without a correction
VERDICTS = ("restores", "reduces", "adds", "cannot be told", "never acts", "no bias", "no signal")


def bias_of(e: Estimate) -> float:
  return max(e.bias, FLOOR)


def verdict(found: list[Estimate], none: list[Estimate]) -> str:
  """Returns a word of VERDICTS: what the correction does to the bias, beyond TOLD standard errors.

  "restores": at most RESTORED of the bias is left; "never acts": every gradient is the one without it; "no
  signal": it rejects nearly all in some policy; "no bias": there is none to correct.
  """
  if any(math.isnan(e.bias) for e in found):
    return "no signal"
  if all(np.allclose((a.scale, a.bias, a.variance), (b.scale, b.bias, b.variance), rtol=1e-9)
         for a, b in zip(found, none, strict=True)):  # fmt: skip
    return "never acts"
  mean, error = log_ratio(found, none, bias_of)
  if mean + TOLD * error < math.log(RESTORED):
    return "restores"
  if max(e.bias for e in none) <= 2 * FLOOR:
    return "no bias" if max(e.bias for e in found) <= 2 * FLOOR else "adds"
  sign = told(mean, error)
  return "cannot be told" if sign is None else "adds" if sign else "reduces"


def summary(found: list[Estimate], none: list[Estimate]) -> dict:
  """Returns the numbers of a table's row; log ratios are to the cause without a correction."""
  of = lambda key: [getattr(e, key) for e in found]
  row = {"verdict": verdict(found, none)}
  for key in "scale", "bias", "variance":
    row |= {key: float(np.mean(of(key))), f"{key}/error": _error(of(key))}
  for key, number in (("bias", bias_of), ("variance", lambda e: e.variance), (_mse(), Estimate.mse)):
    mean, error = log_ratio(found, none, number)
    row |= {f"log {key} ratio": mean, f"log {key} ratio/error": error}
  return row


def gaps(found: list[Estimate]) -> dict:
  """Returns the gap of a cause, whatever is done about it."""
  row = {}
  for key in "gap", "k1", "k3", "ess", "flips", "bias":
    values = [getattr(e, key) for e in found]
    row |= {key: float(np.mean(values)), f"{key}/error": _error(values)}
  return row


def _mse() -> str:
  return f"mse at {BUDGET}"


def _error(values: list[float]) -> float:
  return float(np.std(values, ddof=1) / math.sqrt(len(values)))
