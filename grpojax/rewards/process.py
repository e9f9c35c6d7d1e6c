"""Scores of the single steps of a completion, at the tokens where the steps end.

Process supervision learns from these scores (GRPO, https://arxiv.org/abs/2402.03300 section 4.1.3).
"""

import bisect
from collections.abc import Callable

import numpy as np

from grpojax.data import text


def score(scorer: Callable, tokenizer, groups, tokens, length, max_steps: int):
  """Returns (dict of step_score [P, G, K] float32 and step_end [P, G, K] int32, counts of failures).

  `scorer` gives the steps of each sample of P `groups` as (score, end in characters), in order, or an
  Exception: such a completion has no steps.  tokens [P, G, T] and length [P, G] are the sampled ones.
  step_end is the index of the token that completes the step, -1 for no step; steps beyond K = max_steps
  are left out.
  """
  shape = (*np.shape(length), max_steps)
  scores, ends = np.zeros(shape, np.float32), np.full(shape, -1, np.int32)
  left_out = failed = 0
  found = scorer([sample for group in groups for sample in group])
  for row, steps in zip(np.ndindex(*shape[:2]), found, strict=True):
    if isinstance(steps, Exception):
      failed, steps = failed + 1, []
    left_out += max(0, len(steps) - max_steps)
    for k, (value, end) in enumerate(steps[:max_steps]):
      scores[*row, k] = value
      ends[*row, k] = token_at(tokenizer, tokens[row][: length[row]], end)
  counts = {"process/steps_left_out": left_out, "process/failed": failed}
  return dict(step_score=scores, step_end=ends), counts


def token_at(tokenizer, tokens: np.ndarray, end: int) -> int:
  """Returns the index of the token with which the text of `tokens` first has `end` characters."""
  characters = lambda n: len(text.decode(tokenizer, tokens, n))
  return bisect.bisect_left(range(1, len(tokens)), end, key=characters)
