"""What a step's rewards become: one sum, or for GDPO each by itself."""

from collections import Counter
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
from objective_toys import recipe

from grpojax import rewards
from grpojax.data import text
from grpojax.rollout.score import Asked, as_answered, ask, score
from grpojax.types import Prompts, Rollout

LENGTH = np.array([[1, 2, 3, 4]], np.int32)


def even(sample):
  """Has no verdict of a completion of one token."""
  return None if sample.length == 1 else float(sample.length % 2 == 0)


def short(sample):
  """Fails on three tokens."""
  return 1 / (sample.length - 3)


def scored(advantage: str):
  c = recipe("gdpo")
  c.objective.advantage.fn = advantage
  with c.unlocked():
    del c.reward.soft_overlong
    c.reward.accuracy = dict(fn=f"{__name__}:even")
    c.reward.short = dict(fn=f"{__name__}:short", weight=0.5)
  tokenizer = text.load_tokenizer()
  counters = Counter()
  context = SimpleNamespace(
    config=c,
    data=SimpleNamespace(tokenizer=tokenizer),
    scorer=rewards.build(c.reward),
    step_scorer=None,
    counters=counters,
  )
  prompts = Prompts(np.zeros((1, 2), np.int32), np.array([2]), np.array([0]), [{}])
  rollout = Rollout(np.full((1, 4, 4), 5, np.int32), LENGTH, LENGTH < 4, *np.zeros((2, 1, 4, 4), np.float32))
  return score(context, ask(context, prompts, rollout)), counters


def test_for_a_sum_a_completion_lacks_no_reward():
  found, counters = scored("zscore")
  np.testing.assert_array_equal(found.valid, [[False, True, False, True]])
  np.testing.assert_allclose(found.reward, [[0, 1 - 0.5, 0, 1 + 0.5]])
  assert found.extra == {} and counters["rewards/short/failed"] == 1


def test_for_gdpo_a_completion_needs_its_verdict_and_no_other_reward():
  found, counters = scored("gdpo")
  np.testing.assert_array_equal(found.valid, [[False, True, True, True]])
  np.testing.assert_allclose(found.reward, [[0, 0.5, 0, 1.5]])
  np.testing.assert_allclose(found.extra["part"][0], [[0, -0.5], [1, -1], [0, 0], [1, 1]])
  np.testing.assert_array_equal(found.extra["part_valid"][0], [[0, 1], [1, 1], [1, 0], [1, 1]])
  np.testing.assert_array_equal(found.extra["part_weight"][0], [[1, 0.5]] * 4)
  assert counters["rewards/accuracy/abstained"] == counters["rewards/short/failed"] == 1


def test_what_is_answered_comes_in_order_without_holding_up_the_rest_and_what_is_missing_can_be_given_up():
  answers = [Future() for _ in range(4)]
  asked = [Asked(None, None, [], {"accuracy": answer}) for answer in answers]
  found = as_answered(iter([*enumerate(asked), (-1, None)]))
  come = lambda: [number for number, _ in next(found)]
  assert come() == []
  answers[1].set_result([])
  assert come() == []  # 0 comes first
  answers[0].set_result([])
  assert come() == [0, 1]
  assert come() == come() == []  # also the turn of one that asked nothing
  assert come() == [2]  # nothing is left to do but to wait for it
  found.close()
  assert answers[3].cancelled() and not answers[2].cancelled()
