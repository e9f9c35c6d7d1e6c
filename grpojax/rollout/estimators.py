"""pass@1, avg@k, pass@k, maj@k, with confidence intervals over questions, the unit that was sampled."""

from collections import Counter
from math import comb

import numpy as np


def pass_at_k(correct, samples: int, k: int) -> np.ndarray:
  """Returns 1 - C(n - c, k) / C(n, k) per question, unbiased for "one of k is right"; correct [P] counts.

  Source: Chen et al. 2021, https://arxiv.org/abs/2107.03374 equation 1.
  """
  if not 1 <= k <= samples:
    raise ValueError(f"pass@{k} needs at least {k} samples per question; there are {samples}.")
  return np.array([1 - comb(samples - int(c), k) / comb(samples, k) for c in correct])


def majority(answers: list[str | None], right) -> float:
  """Returns the accuracy of the most frequent answer, ties averaged; samples without one do not vote."""
  votes = Counter(a for a in answers if a is not None)
  if not votes:
    return 0.0
  top = max(votes.values())
  winners = [a for a, n in votes.items() if n == top]
  return float(np.mean([right[answers.index(a)] for a in winners]))


def per_question(right, answers, length, ended) -> dict[str, np.ndarray]:
  """Returns one number per question, each [P], of right, length, ended [P, k] and answers (P lists of k).

  Trajectories have no answers (None) that could be counted, so neither a majority nor a share that answers.
  """
  counted = {"correct": right.sum(axis=1), "length": length.mean(axis=1), "ended": ended.mean(axis=1)}
  if answers is None:
    return counted
  return counted | {
    "majority": np.array([majority(a, r) for a, r in zip(answers, right, strict=True)]),
    "answered": np.array([np.mean([bool(a) for a in group]) for group in answers]),
  }


def summarise(questions: dict[str, np.ndarray], k: int) -> dict[str, float]:
  """Numbers per question, k samples each -> metrics under `eval/`.

  pass@1 is the unbiased estimator at k = 1, which equals avg@k, the mean over all samples; its
  interval is 1.96 standard errors over questions (ddof 1), the unit that was sampled; one question has none.
  """
  correct = questions["correct"]
  optional = {name: name for name in ("answered", "return", "turns", "no_verdict")} | {"majority": f"maj@{k}"}
  pass1 = pass_at_k(correct, k, 1)
  deviation = pass1.std(ddof=1) if len(pass1) > 1 else None
  return {
    "eval/pass@1": float(pass1.mean()),
    **({} if deviation is None else {"eval/pass@1_ci95": float(1.96 * deviation / np.sqrt(len(pass1)))}),
    f"eval/avg@{k}": float(correct.mean() / k),
    f"eval/pass@{k}": float(pass_at_k(correct, k, k).mean()),
    **{f"eval/{name}": float(questions[at].mean()) for at, name in optional.items() if at in questions},
    "eval/mean_length": float(questions["length"].mean()),
    "eval/clipped_ratio": float(1 - questions["ended"].mean()),
  }


def estimate(questions: dict[str, np.ndarray], k: int) -> dict[str, np.ndarray]:
  """Numbers per question, k samples each -> each metric's value of every question, [P].

  pass@j for j = 1, 2, 4, ... and k; avg@k, the mean over all samples, which pass@1 equals; maj@k; the share
  that states an answer, right or wrong.
  """
  powers = [2**i for i in range(k.bit_length())]
  return {
    **{f"pass@{j}": pass_at_k(questions["correct"], k, j) for j in sorted({*powers, k})},
    f"avg@{k}": questions["correct"] / k,
    f"maj@{k}": questions["majority"],
    "answered": questions["answered"],
    "mean_length": questions["length"],
    "clipped_ratio": 1 - questions["ended"],
  }


def bootstrap(values: np.ndarray, resamples: int = 10_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
  """Returns the ends [M] of the 95 % percentile intervals of the M means of values [P, M] of P questions.

  Of equal values, as where nothing was solved, the interval is a point: that is all that this method can
  say of them.
  Source: Efron 1979, https://doi.org/10.1214/aos/1176344552; percentiles as in Efron 1981.
  """
  low, high = np.quantile(resampled(values, resamples, seed), [0.025, 0.975], axis=0)
  return low, high


def resampled(values: np.ndarray, resamples: int = 10_000, seed: int = 0) -> np.ndarray:
  """Returns the means [resamples, M] of values [P, M] over draws of P whole questions with replacement."""
  rng, P, means = np.random.default_rng(seed), len(values), []
  at_once = max(1, (1 << 16) // P)  # their counts stay in a processor's cache
  for first in range(0, resamples, at_once):
    means.append(counts(rng, P, min(at_once, resamples - first)) @ values / P)
  return np.concatenate(means)


def counts(rng: np.random.Generator, P: int, resamples: int) -> np.ndarray:
  """Returns how often each of P is in each of so many draws of P with replacement, [resamples, P]."""
  drawn = rng.integers(P, size=(resamples, P)) + P * np.arange(resamples)[:, None]
  return np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
