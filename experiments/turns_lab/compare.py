"""What can be told apart: numbers over a game's policies, with standard errors.

Bias is told from zero, or from another bias, beyond TOLD standard errors of the measurement; its square has
an unbiased estimate, so that noise does not pass for bias.  Variances and mean squared errors are
compared policy by policy, on the same groups, and the error is that of the mean log ratio over policies.
"""

import math

import numpy as np

from experiments.estimator_lab.claims.common import EXACT
from experiments.turns_lab.measure import BUDGET, Estimate

TOLD = 3.0  # standard errors
ENOUGH = 0.05  # bias / |g| that must be within reach before an estimate may be called unbiased


def bias2(found: list[Estimate]) -> tuple[float, float]:
  """Returns the mean of bias² over policies, and its standard error."""
  return float(np.mean([e.bias2 for e in found])), _pooled([e.bias2_error for e in found])


def null(found: list[Estimate]) -> float:
  """Returns the standard error that the mean of bias² has if there is no bias."""
  return _pooled([e.bias2_null for e in found])


def resolution(found: list[Estimate]) -> float:
  """Returns the smallest bias that can be told from zero, in |g|."""
  return math.sqrt(TOLD * null(found))


def biased(found: list[Estimate]) -> bool:
  """Returns whether bias can be told from zero."""
  return bias2(found)[0] > TOLD * null(found) + EXACT**2


def unbiased(found: list[Estimate]) -> bool | None:
  """Returns False if bias can be told from zero, True if not even ENOUGH of it could be there, else None."""
  if biased(found):
    return False
  return True if math.sqrt(max(bias2(found)[0], 0.0) + TOLD * null(found)) <= ENOUGH else None


def more_biased(one: list[Estimate], other: list[Estimate]) -> bool | None:
  """Returns whether `one` has more bias² than `other`; None if that cannot be told."""
  (a, error_a), (b, error_b) = bias2(one), bias2(other)
  return told(a - b, math.hypot(error_a, error_b))


def noisier(one: list[Estimate], other: list[Estimate]) -> bool | None:
  """Returns whether `one` has more variance a sampled token; None if that cannot be told."""
  return told(*log_ratio(one, other, lambda e: e.variance))


def worse(one: list[Estimate], other: list[Estimate]) -> bool | None:
  """Returns whether `one` has the larger mean squared error at BUDGET groups; None if that cannot be told."""
  return told(*log_ratio(one, other, Estimate.mse))


def log_ratio(one: list[Estimate], other: list[Estimate], of) -> tuple[float, float]:
  """Returns the mean over policies of log of(one) / of(other), and its standard error."""
  x = np.log([of(a) / of(b) for a, b in zip(one, other, strict=True)])
  return float(x.mean()), float(x.std(ddof=1) / math.sqrt(len(x)))


def told(x: float, error: float) -> bool | None:
  """Returns the sign of x as a truth value, None if it is within TOLD standard errors of 0."""
  return None if abs(x) <= TOLD * error else x > 0


def crossing(one: list[Estimate], other: list[Estimate]) -> float:
  """Returns the tokens a gradient below which `one`, quieter but more biased, has the smaller squared error.

  Infinite if it is quieter and not more biased, 0 if it is not quieter.
  """
  quieter = float(np.mean([b.variance - a.variance for a, b in zip(one, other, strict=True)]))
  bias = bias2(one)[0] - max(bias2(other)[0], 0.0)
  if quieter <= 0:
    return 0.0
  return quieter / bias if biased(one) and bias > 0 else math.inf


def summary(found: list[Estimate], reference: list[Estimate]) -> dict:
  """Returns the numbers of a table's row; log ratios are to the `reference`."""
  square, error = bias2(found)
  of_policies = lambda key: [getattr(e, key) for e in found]
  variance, mse = (log_ratio(found, reference, of) for of in (lambda e: e.variance, Estimate.mse))
  return {
    "scale": float(np.mean(of_policies("scale"))),
    "scale/error": _pooled(of_policies("scale_error")),
    "bias": math.sqrt(max(square, 0.0)),
    "bias/error": error / (2 * math.sqrt(square)) if square > 0 else 0.0,
    "bias2": square,
    "bias2/error": error,
    "bias told": biased(found),
    "resolution": resolution(found),
    "variance": float(np.mean(of_policies("variance"))),
    "variance/error": _pooled(of_policies("variance_error")),
    "log variance ratio": variance[0],
    "log variance ratio/error": variance[1],
    f"log mse ratio at {BUDGET} groups": mse[0],
    f"log mse ratio at {BUDGET} groups/error": mse[1],
    "better below tokens": crossing(found, reference),
  }


def _pooled(errors: list[float]) -> float:
  return float(np.sqrt(np.square(errors).sum()) / len(errors))
