"""ScaleRL's sigmoid, R(C) = R0 + (A - R0) / (1 + (C_mid / C)^B), and its fit to evaluations.

R is a share of held-out questions, C compute in some unit, R0 that before training.
Source: https://arxiv.org/abs/2510.13786, which fits B in each cell of a grid over A and C_mid.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import elementwise
from scipy.special import expit

A_GRID = np.linspace(0.0, 1.0, 201)
B_RANGE = (0.05, 10.0)
FLAT = 0.005  # share of questions: with a gain below it, B and C_mid mean nothing
STEEPEST = 0.224  # the largest |u| s (1 - s) of s = 1 / (1 + e^-u): how fast the sigmoid moves with log B


class Fit(NamedTuple):
  A: float  # the accuracy that it approaches
  B: float  # how steeply
  C_mid: float  # the compute at which half of the gain is made
  R0: float
  error: float  # sum of squared errors
  points: int

  @property
  def flat(self) -> bool:
    """Returns True where there is no gain that B and C_mid could describe."""
    return abs(self.A - self.R0) < FLAT

  def at(self, C) -> np.ndarray:
    """Returns the fitted accuracy at the compute C."""
    return sigmoid(C, self.R0, self.A, self.B, self.C_mid)


def sigmoid(C, R0: float, A: float, B: float, C_mid: float) -> np.ndarray:
  return R0 + (A - R0) * expit(B * np.log(np.asarray(C, float) / C_mid))


def linearised(C, R, R0: float, A: float) -> tuple[np.ndarray, np.ndarray]:
  """Returns (log C, log((R - R0) / (A - R))), a line of slope B; NaN where R isn't between R0 and A."""
  R = np.asarray(R, float)
  share = (R - R0) / np.where(A == R0, np.nan, A - R0)
  inside = (share > 0) & (share < 1)
  share = np.where(inside, share, 0.5)
  return np.log(np.asarray(C, float)), np.where(inside, np.log(share / (1 - share)), np.nan)


def mid_grid(C) -> np.ndarray:
  """Returns 81 values of C_mid, from a fourth of the least compute to four times the most."""
  return np.geomspace(np.min(C) / 4, np.max(C) * 4, 81)


def fit(C, R, R0: float, A_grid, C_mid_grid, B_range=B_RANGE) -> Fit:
  """Returns the least squared error over all cells of the two grids, in each over B; C, R [N].

  In a cell, 201 values of B bracket the least error, where its derivative has a root.  Of equal errors the
  first in the order of (A, C_mid) wins.
  """
  logC, gain, B = np.log(np.asarray(C, float)), np.asarray(R, float) - R0, np.geomspace(*B_range, 201)
  a, log_mid = np.asarray(A_grid, float) - R0, np.log(np.asarray(C_mid_grid, float))
  s = expit(B[:, None] * (logC - log_mid[:, None])[:, None, :])  # [mid, B, N]
  error = (a * a)[:, None, None] * (s * s).sum(-1) - 2 * a[:, None, None] * (s @ gain) + gain @ gain
  best = error.argmin(axis=-1)  # [A, mid]
  root = np.sqrt(np.maximum(error.min(axis=-1), 0))
  # Within a bracket the residuals' norm moves by no more than `slack` (and rounding): other cells cannot win.
  slack = np.sqrt(len(logC)) * STEEPEST * np.log(B[1] / B[0]) * np.abs(a)[:, None]
  rows, columns = np.nonzero(root - slack <= root.min() + 1e-7)
  a, log_mid, at = a[rows], log_mid[columns], best[rows, columns]

  def slope(B, a, log_mid):
    """Half of the error's derivative by B."""
    u = logC - log_mid[..., None]
    s = expit(B[..., None] * u)
    return a * ((a[..., None] * s - gain) * s * (1 - s) * u).sum(-1)

  ends = B[np.maximum(at - 1, 0)], B[np.minimum(at + 1, len(B) - 1)]
  found = elementwise.find_root(slope, ends, args=(a, log_mid))
  fitted = np.where(found.success, found.x, B[at])  # no root: the end of the range, or a flat cell
  errors = np.square(gain - a[:, None] * expit(fitted[:, None] * (logC - log_mid[:, None]))).sum(-1)
  i = int(errors.argmin())
  A, C_mid = float(np.asarray(A_grid)[rows[i]]), float(np.asarray(C_mid_grid)[columns[i]])
  return Fit(A, float(fitted[i]), C_mid, float(R0), float(errors[i]), len(logC))
