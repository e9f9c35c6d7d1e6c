"""Countdown: exact arithmetic, every number once, and nothing but arithmetic."""

import itertools
import json

import pytest

from grpojax import rewards
from grpojax.rewards import countdown


def sample(text, nums=(3, 5, 7, 2), target=4):
  return rewards.Sample(text, dict(meta=json.dumps(dict(nums=nums, target=target))), len(text), True)


def tag(text):
  return f"<think>hm</think> so <answer>{text}</answer>"


@pytest.mark.parametrize(
  ("text", "right"),
  [
    (tag("(7 + 5) / (2 * 3) * 2"), 0),  # 2 twice
    (tag("7 - 5 + 2 * 3"), 0),  # is 8
    (tag("(3 * 5 - 7) / 2"), 1),
    (tag("(3 * 5 - 7) / 2 = 4"), 1),
    (tag("(3 × 5 - 7) ÷ 2"), 1),
    (tag("9 - 5"), 0),  # 9 is not given
    (tag("4"), 0),
    (tag("2 + 2"), 0),
    (tag("7 - 3"), 0),  # leaves numbers out
    (tag("3 / (5 - 7 + 2)"), 0),  # divides by zero
    (tag("__import__('os').getpid()"), 0),
    (tag("3 ** 5"), 0),
    (tag("-3 + 7"), 0),  # a sign is no operation
    (tag("True + 3"), 0),
    (tag("(" * 300), 0),
    (tag("3 *"), 0),
    ("(3 * 5 - 7) / 2", 0),  # no tag
    ("<think><answer>(3 * 5 - 7) / 2</answer>", 0),  # in a thought without end
    (tag("9") + tag("(3 * 5 - 7) / 2"), 1),  # the last one speaks
    (tag("(3 * 5 - 7) / 2") + tag("9"), 0),
  ],
)
def test_a_line_by_hand_for_each_way_to_be_wrong(text, right):
  assert countdown.expression(sample(text)) == right


def test_numbers_may_be_left_out_where_the_config_says_so():
  assert countdown.expression(sample(tag("7 - 3")), every=False) == 1
  assert countdown.expression(sample(tag("2 + 2")), every=False) == 0


def test_other_forms_and_rows_without_numbers():
  assert countdown.expression(sample(r"\boxed{(3 \times 5 - 7) / 2}"), form="boxed") == 1
  assert countdown.expression(rewards.Sample("", dict(meta="{}"), 0, True)) is None
  with pytest.raises(ValueError, match="form = 'box', but it is one of boxed, answer, hashes, tag"):
    rewards.build(dict(accuracy=dict(fn="countdown:expression", form="box")))


def test_against_python_over_all_expressions_of_three_numbers():
  """float64 decides; thirds are where a float would not."""
  for a, b, c in itertools.permutations((3, 8, 2)):
    for f, g in itertools.product("+-*/", repeat=2):
      text = f"({a} {f} {b}) {g} {c}"
      for target in (eval(text), 5):
        exact = abs(target - round(target)) < 1e-9
        got = countdown.expression(sample(tag(text), (3, 8, 2), round(target)))
        assert got == (exact and abs(eval(text) - round(target)) < 1e-9), text
