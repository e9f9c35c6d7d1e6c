"""Exact expectations over k of a question's n samples, drawn without replacement, for every k from 1 to n."""

from collections import Counter
from math import comb

import numpy as np

MOST = 1000  # samples of a question: a float holds the number of ways to draw half of them, not of many more


def best_of(score, value) -> np.ndarray:
  """Returns the expected `value` of the sample that scores best among k, for k = 1 .. n, [n].

  score, value [n]; samples of equal score share.  With verdicts as the score it is pass@k; with the score as
  the value, its expected maximum.
  """
  n = len(score)
  at = np.unique(score, return_inverse=True)[1]  # level of each sample, 0 the lowest
  no_better = np.cumsum(np.bincount(at)).tolist()  # samples at or below each level
  mean = np.bincount(at, value) / np.bincount(at)
  below = np.array([[comb(m, k) / comb(n, k) for m in no_better] for k in range(1, n + 1)])
  return np.diff(below, axis=1, prepend=0.0) @ mean  # chance that the best is of a level, times its mean


def majority_of(answers: list[str | None], right) -> np.ndarray:
  """Returns maj@k for k = 1 .. n, [n]: the expected accuracy of the commonest of k answers, ties shared.

  A sample without an answer (None) is drawn and does not vote; a draw without votes is wrong.  Draws are
  counted as coefficients: for the most votes j, that of x^k y^t is the number of draws of k samples in
  which t answers have j votes each and no other has more.
  """
  n, votes = len(answers), Counter(a for a in answers if a is not None)
  correct = {a: float(right[answers.index(a)]) for a in votes}
  gained = np.zeros(n + 1)  # [k]: accuracy summed over all draws of k
  for j in range(1, max(votes.values(), default=0) + 1):
    tie = [a for a in votes if votes[a] >= j]
    others = n - sum(votes[a] for a in tie)
    ways = np.array([[comb(others, k) for k in range(others + 1)]], float)  # [t, k]: draws
    won = np.zeros_like(ways)  # [t, k]: right ones among the t, summed over these draws
    for a in tie:
      less, equal = [float(comb(votes[a], i)) for i in range(j)], float(comb(votes[a], j))
      ties, won_by_it = equal * ways, equal * (won + correct[a] * ways)
      ways, won = _times(ways, less), _times(won, less)
      ways[1:, j:] += ties
      won[1:, j:] += won_by_it
    shared = won[1:] / np.arange(1, len(won))[:, None]
    gained[: shared.shape[1]] += shared.sum(axis=0)
  return gained[1:] / np.array([comb(n, k) for k in range(1, n + 1)], float)


def _times(ways: np.ndarray, less: list[float]) -> np.ndarray:
  """Multiplies the polynomials of x in the rows of [t, k] by sum_i less[i] x^i; one more t, and j more k."""
  (T, K), j = ways.shape, len(less)
  product = np.zeros((T + 1, K + j))
  if j >= T:  # the shorter of two loops: T j is at most n
    for t in range(T):
      product[t, :-1] = np.convolve(ways[t], less)
  else:
    for i, draws in enumerate(less):
      product[:T, i : i + K] += draws * ways
  return product
