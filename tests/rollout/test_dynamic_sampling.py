"""Dynamic sampling: refill, cap, surplus, and a batch that keeps its shape."""

import numpy as np
import pytest
from ml_collections import ConfigDict
from objective_cases import OTHERS

from grpojax.rollout.curriculum import Outcomes
from grpojax.rollout.dynamic_sampling import collect
from grpojax.rollout.groups import mixed
from grpojax.rollout.metrics import contrast, describe
from grpojax.types import Groups, Prompts, Rollout, Scored

P, G, T = 4, 2, 3


def world(mixed_of_draw):
  """draw and ask over prompts 0, 1, 2, ...; prompt i is mixed iff mixed_of_draw[i]."""
  drawn = iter(range(0, 10_000, P))

  def draw():
    ids = np.arange(start := next(drawn), start + P, dtype=np.int32)
    example = [{"name": f"row {i}"} for i in ids]
    return Prompts(np.zeros((P, 5), np.int32), np.ones(P, np.int32), ids, example)

  def ask(prompts, number):
    assert number == prompts.id[0] // P  # of the draw in this step
    accuracy = np.array([[1, 0] if mixed_of_draw[i] else [1, 1] for i in prompts.id], np.float32)
    rollout = Rollout(
      np.broadcast_to(prompts.id[:, None, None], (P, G, T)).copy(),
      np.full((P, G), T),
      np.ones((P, G), bool),
      *np.zeros((2, P, G, T), np.float32),
      np.broadcast_to(prompts.id[:, None, None, None, None], (P, G, T, 1, 2)),
    )
    shaped = accuracy - 0.1 * np.arange(G, dtype=np.float32)[None]  # shaping makes all look mixed
    scored = Scored(shaped, accuracy, np.ones((P, G), bool), {"accuracy": accuracy}, {})
    return Groups(prompts, rollout, scored)

  return draw, ask


def in_turn(draw, ask):
  """One batch after the other, as `collect` asks for them."""
  return lambda number: [ask(draw(), number)]


def config(**changes):
  return ConfigDict(dict(enabled=True, max_tries=3) | changes)


def test_without_dynamic_sampling_one_draw_as_it_is():
  groups, outcomes, stats = collect(config(enabled=False), in_turn(*world([False] * 100)))
  assert groups.prompts.id.tolist() == [0, 1, 2, 3]
  of_prompts = {"prompts/all_right": 1.0, "prompts/all_wrong": 0.0, "prompts/mixed": 0.0}
  assert stats == {"num_tokens": P * G * T} | of_prompts
  assert outcomes.right.tolist() == [2] * P and outcomes.count.tolist() == [G] * P


def test_contrast_counts_valid_completions_and_no_group_without_any():
  right, count = np.float32([[2, 0, 1, 0, 3], [2, 4, 4, 0, 3]])
  seen = contrast(Outcomes(np.arange(5), right, count))
  assert seen == {"prompts/all_right": 2 / 4, "prompts/all_wrong": 1 / 4, "prompts/mixed": 1 / 4}


def test_refills_in_order_of_arrival_and_cuts_the_surplus():
  pattern = [0, 1, 0, 1, 1, 1, 1, 0]
  groups, outcomes, stats = collect(config(), in_turn(*world(pattern)))
  assert groups.prompts.id.tolist() == [1, 3, 4, 5]
  assert groups.rollout.tokens[:, 0, 0].tolist() == [1, 3, 4, 5]  # rows travel together
  assert groups.rollout.routing[:, 0, 0, 0, 0].tolist() == [1, 3, 4, 5]
  assert [e["name"] for e in groups.prompts.example] == ["row 1", "row 3", "row 4", "row 5"]
  assert groups.scored.valid.all()
  assert outcomes.id.tolist() == list(range(8))  # thrown away or not
  assert outcomes.right.tolist() == [1 if mixed else 2 for mixed in pattern]
  assert stats == {
    "num_tokens": 2 * P * G * T,
    "prompts/all_right": 3 / 8,  # of all that was drawn
    "prompts/all_wrong": 0.0,
    "prompts/mixed": 5 / 8,
    "dynamic_sampling/tries": 2,
    "dynamic_sampling/accuracy": (5 * 0.5 + 3) / 8,  # of all that was drawn, not of what was kept
    "dynamic_sampling/keep_rate": 5 / 8,
    "dynamic_sampling/missing_groups": 0,
    "dynamic_sampling/surplus_groups": 1,
    "dynamic_sampling/wasted_tokens": 2 * G * T,  # of the two groups behind the last that was needed
    "drawn/reward": pytest.approx((5 * 0.5 + 3) / 8 - 0.05),  # and so are these
    "drawn/accuracy": (5 * 0.5 + 3) / 8,
    "drawn/rewards/accuracy/mean": (5 * 0.5 + 3) / 8,
    "drawn/completions/mean_length": T,
    "drawn/completions/mean_terminated_length": T,
    "drawn/completions/clipped_ratio": 0.0,
  }


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_batches_that_were_sampled_ahead_come_at_once_and_change_no_group(ahead):
  pattern = [0, 1, 0, 1, 1, 1, 1, 0, 1, 1, 0, 0]
  draw, ask = world(pattern)
  sample = lambda number: [ask(draw(), number + i) for i in range(1 if number else ahead)]
  groups, outcomes, stats = collect(config(), sample)
  assert groups.prompts.id.tolist() == [1, 3, 4, 5] and groups.scored.valid.all()
  assert outcomes.id.tolist() == list(range(max(2, ahead) * P))
  assert stats["dynamic_sampling/tries"] == 2  # that were needed
  assert stats["dynamic_sampling/surplus_groups"] == sum(pattern[: max(2, ahead) * P]) - P
  assert stats["dynamic_sampling/wasted_tokens"] == (max(2, ahead) * P - 6) * G * T


def test_the_stored_case_of_refilling():
  """Its six groups arrive in the same order, but three at a time: a draw is as large as the step."""
  case = OTHERS["dynamic_sampling_refill"]["extra"]
  arrive = np.float32(case["inputs"]["gen_batches_acc"])  # [batches, groups, G]
  names = [[batch, group] for batch in range(arrive.shape[0]) for group in range(arrive.shape[1])]
  accuracy, (size, wanted) = arrive.reshape(-1, G), (3, case["expected"]["selected"])
  drawn = iter(range(0, len(names), size))

  def draw():
    ids = np.arange(start := next(drawn), start + size, dtype=np.int32)
    return Prompts(np.zeros((size, 5), np.int32), np.ones(size, np.int32), ids, [{}] * size)

  def ask(prompts, _):
    got, one = accuracy[prompts.id], np.ones((size, G))
    rollout = Rollout(one[..., None].astype(np.int32), one.astype(np.int32), one > 0, *[one[..., None]] * 2)
    return Groups(prompts, rollout, Scored(got, got, one > 0, {}, {}))

  groups, _, stats = collect(config(max_tries=10), in_turn(draw, ask))
  assert [names[i] for i in groups.prompts.id] == wanted and groups.scored.valid.all()
  assert stats["dynamic_sampling/tries"] == 2  # verl's batches of two take three
  assert stats["dynamic_sampling/surplus_groups"] == len(case["expected"]["discarded_surplus"])


def test_gives_up_after_max_tries_and_fills_the_shape_with_what_does_not_count():
  pattern = [0] * 5 + [1] + [0] * 100
  groups, _, stats = collect(config(), in_turn(*world(pattern)))
  assert groups.rollout.tokens.shape == (P, G, T)
  assert groups.prompts.id[0] == 5
  assert groups.scored.valid.tolist() == [[True] * G] + [[False] * G] * 3
  assert stats["dynamic_sampling/tries"] == 3 and stats["dynamic_sampling/missing_groups"] == 3
  assert describe(groups)["accuracy"] == 0.5  # of the one group that counts


def test_no_mixed_group_at_all_still_has_the_shape():
  groups, *_ = collect(config(), in_turn(*world([0] * 100)))
  assert groups.rollout.tokens.shape == (P, G, T) and not groups.scored.valid.any()
  assert np.isnan(describe(groups)["reward"])  # nothing to average, which is not 0


def test_an_invalid_sample_does_not_make_a_group_mixed():
  accuracy = np.array([[1, 0], [1, 0], [1, 1]], np.float32)
  valid = np.array([[True, True], [True, False], [True, True]])
  assert mixed(Scored(accuracy, accuracy, valid, {}, {})).tolist() == [True, False, False]


def test_description_leaves_invalid_rows_out():
  draw, ask = world([1, 1, 1, 1])
  groups, *_ = collect(config(enabled=False), in_turn(draw, ask))
  valid = np.ones((P, G), bool)
  valid[:, 1] = False  # only the right ones remain
  seen = describe(groups._replace(scored=groups.scored._replace(valid=valid)))
  assert seen["accuracy"] == 1 and seen["reward"] == pytest.approx(1)
